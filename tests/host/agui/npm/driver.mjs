// Drives the real HttpAgent of @ag-ui/client, its own verifying stage on, by a script that comes as JSON on stdin.
//
// {"url": ..., "threadId": ..., "headers": {}, "steps": [...]}; one JSON line on stdout for each step that says something:
//   {"do": "message", "message": {...}}            adds a message
//   {"do": "state", "state": ...}                  sets the state
//   {"do": "run", "params": {...}, "leaveAfter": n}  one run; with leaveAfter it is aborted after so many events
//   {"do": "together", "runs": [{...}, ...]}       runs at once, each with an agent of its own and the same history
//   {"do": "fresh"}                                a new agent on the thread, as after a reload of the page
//   {"do": "parallel", "count": n, "content": ..}  agents on threads of their own, at once
//   {"do": "replay", "threads": [[[event, ...], ...], ...]}  the runs of each thread, as if a server had sent them
import { AbstractAgent, HttpAgent } from "@ag-ui/client";
import { from } from "rxjs";

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const script = JSON.parse(Buffer.concat(chunks).toString("utf8"));

const say = (value) => process.stdout.write(JSON.stringify(value) + "\n");

function made(threadId, messages = []) {
  const agent = new HttpAgent({ url: script.url, threadId, headers: script.headers ?? {}, initialMessages: messages });
  return agent;
}

async function run(agent, params, leaveAfter) {
  const events = [];
  let failed = null;
  let finished = null;
  const subscriber = {
    onEvent: ({ event }) => {
      events.push(event);
      if (leaveAfter !== undefined && events.length === leaveAfter) agent.abortRun();
    },
    onRunFailed: ({ error }) => {
      failed = String(error?.message ?? error);
    },
    onRunFinishedEvent: (told) => {
      finished = { outcome: told.outcome, result: told.result, pendingToolCallIds: told.pendingToolCallIds };
    },
  };
  let thrown = null;
  try {
    await agent.runAgent(params ?? {}, subscriber);
  } catch (error) {
    thrown = String(error?.message ?? error);
  }
  return {
    events,
    failed,
    finished,
    thrown,
    messages: agent.messages,
    state: agent.state,
    pendingInterrupts: agent.pendingInterrupts,
  };
}

class Replay extends AbstractAgent {
  coming = [];
  run() {
    return from(this.coming);
  }
}

async function replayed(runs) {
  const agent = new Replay({ threadId: "t" });
  const faults = [];
  for (const events of runs) {
    agent.coming = events;
    const resume = agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "cancelled" }));
    const told = await run(agent, resume.length > 0 ? { resume } : {});
    const fault = told.thrown ?? told.failed;
    if (fault !== null && events.at(-1).type !== "RUN_ERROR") faults.push(fault);
    if (told.events.length !== events.length) faults.push(`${told.events.length} of ${events.length} events`);
  }
  return { faults, messages: agent.messages, state: agent.state };
}

let agent = made(script.threadId);
for (const step of script.steps) {
  if (step.do === "message") agent.addMessage(step.message);
  else if (step.do === "state") agent.setState(step.state);
  else if (step.do === "fresh") agent = made(script.threadId, step.messages ?? []);
  else if (step.do === "run") say(await run(agent, step.params, step.leaveAfter));
  else if (step.do === "together") {
    const agents = step.runs.map((one) => made(script.threadId, [...agent.messages, ...one.messages]));
    say(await Promise.all(agents.map((one, index) => run(one, step.runs[index].params))));
  } else if (step.do === "parallel") {
    const agents = Array.from({ length: step.count }, (_, index) =>
      made(`${script.threadId}-${index}`, [{ id: `u-${index}`, role: "user", content: step.content }]),
    );
    const told = await Promise.all(agents.map((one) => run(one, {})));
    say(told.map(({ events, ...rest }) => ({ ...rest, count: events.length })));
  } else if (step.do === "replay") {
    for (const runs of step.threads) say(await replayed(runs));
  } else throw new Error(`unknown step ${step.do}`);
}
