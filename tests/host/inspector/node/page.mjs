// The page's modules, loaded as what they are: their folder has no package.json that says "module".
import { readFile } from "node:fs/promises";

const folder = new URL("../../../../host/agentsession/host/inspector/page/", import.meta.url);

export async function load(name) {
  const source = await readFile(new URL(name, folder), "utf-8");
  return import("data:text/javascript;base64," + Buffer.from(source).toString("base64"));
}
