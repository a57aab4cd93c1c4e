// Drives the real HttpAgent of @ag-ui/client, its own verifying stage on, by a script that comes as JSON on stdin.
//
// {"url": ..., "threadId": ..., "headers": {}, "steps": [...]}; one JSON line on stdout for each step that says something:
//   {"do": "message", "message": {...}}            adds a message
//   {"do": "state", "state": ...}                  sets the state
//   {"do": "run", "params": {...}, "leaveAfter": n}  one run; with leaveAfter it is aborted after so many events
//   {"do": "together", "runs": [{...}, ...]}       runs at once, each with an agent of its own and the same history
//   {"do": "fresh"}                                a new agent on the thread, as after a reload of the page
//   {"do": "parallel", "count": n, "content": ..}  agents on threads of their own, at once
import { HttpAgent } from "@ag-ui/client";

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
  } else throw new Error(`unknown step ${step.do}`);
}
