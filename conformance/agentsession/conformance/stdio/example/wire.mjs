// The wire: what is written to the suite, and how errors are.

import fs from "node:fs";

export const VERSION = "1.0";

/** What a call raises at the suite's end; `code` is the name of an error class of the contract. */
export class Fail extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** Write a line now: what would still be in a buffer when the process is killed was never said. */
export function write(message) {
  let rest = Buffer.from(`${JSON.stringify(message)}\n`);
  while (rest.length > 0) rest = rest.subarray(fs.writeSync(1, rest));
}

export function answer(id, result) {
  if (id !== undefined) write({ id, result });
}

/** An exception that is no `Fail` is a defect of the executor's: its author finds it in the log. */
export function answerError(id, error) {
  const code = error instanceof Fail ? error.code : "Internal";
  if (code === "Internal") console.error(error);
  if (id !== undefined) write({ id, error: { code, message: error.message } });
}
