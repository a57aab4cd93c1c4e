// The play: the script that the suite has sent, what follows from it, and its marks.

import { Fail } from "./wire.mjs";

export const NAME = "example";

const CAPABILITIES = [
  ...["streaming", "host_tool_execution", "elicitation", "steering", "mid_turn_update", "abort", "usage", "reasoning"],
  ...["sub_agents", "load", "resume", "list", "delete", "fork", "rewind"],
];

/** What `start` brings; one process plays one script. */
export const play = { script: undefined, folder: undefined };

/** Take what `start` brings, if every step of it is known. */
export function begin(script, folder, isKnown) {
  const strange = [...everyStep(script.turns.flat())].find(({ step }) => !isKnown(step));
  if (strange !== undefined) throw new Fail("CannotPlay", `there is no step ${strange.step} here`);
  Object.assign(play, { script, folder });
}

function* everyStep(steps) {
  for (const step of steps) {
    yield step;
    if (step.step === "delegate") for (const inner of Object.values(step.agents)) yield* everyStep(inner);
  }
}

function ownCalls() {
  const calls = [...everyStep(play.script.turns.flat())].flatMap((step) => (step.step === "calls" ? step.calls : []));
  return calls.filter((call) => call.needs !== "result");
}

/** The schema of an own tool's arguments: the first call of its name has the say. */
export const schemaOf = (name) => ownCalls().find((call) => call.name === name)?.parameters ?? { type: "object" };

export function descriptor() {
  const ownTools = [...new Set(ownCalls().map((call) => call.name))].map((name) => ({
    name,
    description: `Does ${name}.`,
    parametersSchema: schemaOf(name),
    owner: "agent",
  }));
  const description = "Plays a script, in plain Node.";
  return { name: NAME, executor: "example-node", description, capabilities: CAPABILITIES, ownTools };
}

/** Places in the script where the agent waits until the suite lets it go on. */
export const marks = {
  released: new Set(),
  waiting: new Map(),

  wait(mark) {
    if (this.released.has(mark)) return Promise.resolve();
    return new Promise((go) => this.waiting.set(mark, [...(this.waiting.get(mark) ?? []), go]));
  },

  release(mark) {
    this.released.add(mark);
    for (const go of this.waiting.get(mark) ?? []) go();
    this.waiting.delete(mark);
  },
};
