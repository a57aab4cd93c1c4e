// The page's modules, loaded as what they are: their folder has no package.json that says "module".
import { readFile } from "node:fs/promises";

const folder = new URL("../../../../host/agentsession/host/inspector/page/", import.meta.url);

export async function load(name) {
  return import(await address(name));
}

// As a data address, with what it imports in it as such addresses.
async function address(name) {
  let source = await readFile(new URL(name, folder), "utf-8");
  for (const [whole, other] of [...source.matchAll(/from "\.\/([a-z]+\.js)"/g)]) {
    const inside = await address(other);
    source = source.replace(whole, () => `from "${inside}"`);
  }
  return "data:text/javascript;base64," + Buffer.from(source).toString("base64");
}
