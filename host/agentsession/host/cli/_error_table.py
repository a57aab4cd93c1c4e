"""Every error id that the product can print, explained once: ``explain ID`` and docs/reference/errors.md read this.

Not for: raising them. A test looks for ids in the source that are missing here. May import: ``_error_entry``,
``_error_table_http``, ``_exit_codes``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from agentsession.host.cli._error_entry import ErrorEntry
from agentsession.host.cli._error_table_http import OVER_HTTP
from agentsession.host.cli._exit_codes import Exit

__all__ = ["ERRORS", "ErrorEntry", "errors_page", "exit_for"]


_USAGE = Exit.USAGE
_COMMAND_LINE: Final = (
    ErrorEntry(
        "usage",
        "The command line cannot be understood.",
        "An option is unknown, a value is missing, or two options contradict each other.",
        "Read the line after `fix:`, or run the command with `--help`.",
        _USAGE,
    ),
    ErrorEntry(
        "no-prompt",
        "There is nothing to run: no terminal to type in, and no `--prompt`.",
        "`agentsession run` asks for a prompt only at a terminal. Input from a pipe or from /dev/null is not a person.",
        "Pass the prompt: `agentsession run MODULE:agent -p 'Fix the failing test'`, or drive it with `--json`.",
        _USAGE,
    ),
    ErrorEntry(
        "port-in-use",
        "`serve` cannot listen at this address and port.",
        "Another program listens there, or the address is none of this machine's.",
        "Take another port: `agentsession serve MODULE:agent --port 8001`, or `--port 0` for a free one.",
        _USAGE,
    ),
    ErrorEntry(
        "auth-invalid",
        "What `serve` was told about who may connect cannot be used.",
        "`--tokens` names a text file with a line `USER TOKEN` for each user, the token of 16 characters or more."
        " `--auth` names an object with `async def verify(request)`, which returns a `Principal` or `None`.",
        "Make a token: `python -c 'import secrets; print(secrets.token_urlsafe(32))'`.",
        _USAGE,
    ),
    ErrorEntry(
        "module-missing",
        "The module before the colon does not exist.",
        "The command looks in the current directory first, then where Python looks.",
        "Check the spelling, and run the command from the folder that holds the module.",
        _USAGE,
    ),
    ErrorEntry(
        "not-a-harness",
        "What `agentsession conform` was given is no harness.",
        "The name after the colon is not there, or it is not an object of a subclass of"
        " `agentsession.conformance.harness.Harness` (with `--host`: of"
        " `agentsession.conformance.hosts.harness.HostHarness`), nor a class or function that makes one.",
        "Name the harness: `agentsession conform my_package.conformance:harness`. The tutorial `write-an-executor.md`"
        " builds one, `test-your-host.md` one of a host.",
        _USAGE,
    ),
    ErrorEntry(
        "expected-failures",
        "The file of expected failures cannot be used.",
        "It is no TOML, has another table than `[expected]`, names a rule that there is not, or gives no reason.",
        'Write lines such as `CTL-06 = "why it fails"` under `[expected]`, or leave `--expected` out.',
        _USAGE,
    ),
    ErrorEntry(
        "module-broken",
        "The module exists, but importing it failed.",
        "Its own code raised an error. The file, the line and the error are named.",
        "Run `python -c 'import MODULE'` to see it alone, or add `--debug` for the traceback.",
        _USAGE,
    ),
    ErrorEntry(
        "not-an-agent",
        "What the name after the colon stands for is not an agent.",
        "Taken are an ADK agent or App, an executor, and a function without arguments that returns one of these.",
        "Name the agent itself. When the module holds one, the line after `fix:` names it.",
        _USAGE,
    ),
    ErrorEntry(
        "tools-invalid",
        "What `--tools` names cannot be used as tools.",
        "Taken are a function, a list of functions or tools, and a function without arguments that returns a list.",
        "Give each function type annotations and a docstring; see docs/how-to/run-in-ci.md for an example.",
        _USAGE,
    ),
    ErrorEntry(
        "extra-missing",
        "A package that this needs is not installed.",
        "The base install has no agent framework, no terminal library and no database.",
        'Install the extra that is named, for example: `pip install "agent-session-protocol[adk]"`.',
        _USAGE,
    ),
    ErrorEntry(
        "too-many-sessions",
        "As many sessions are open as may be, and each of them is used.",
        "A server keeps a bounded number of sessions open (`LiveSessions(max_open=...)`).",
        "Try again later, close sessions, or serve with a higher bound.",
    ),
    ErrorEntry(
        "agent-not-found",
        "The server has no agent of this name.",
        "It serves those that it was started with.",
        "Ask which there are: `GET /agents`.",
    ),
    ErrorEntry(
        "stopping",
        "The server is being stopped and opens no more sessions.",
        "It was told to end.",
        "Try again when it runs again.",
    ),
    ErrorEntry(
        "mcp-unavailable",
        "A tool server (MCP) could not be started or reached.",
        "Its program is not there or ended at once, its address does not answer, or it took longer than"
        " `connect_timeout_s`. The line `got:` has the last that it printed, its own variables masked.",
        "Start it by hand to see what it says, or look at `McpTools.stderr`.",
    ),
    ErrorEntry(
        "no-key",
        "There are no credentials for the agent's model.",
        "The model needs an API key, and the environment variable for it is not set. Nothing was sent.",
        "Export the key, choose another model with `--model`, or try `agentsession demo`, which needs none.",
        Exit.NO_CREDENTIALS,
    ),
    ErrorEntry(
        "adk-version",
        "The installed google-adk is not a version that the adapter was tested with.",
        "The adapter relies on behaviour of ADK that changes between its releases, so it refuses rather than guesses.",
        'Install the version that fits: `pip install -U "agent-session-protocol[adk]"`.',
        _USAGE,
    ),
    ErrorEntry(
        "script-exhausted",
        "A scripted model or executor was called more often than its script has steps.",
        "Only tests and demos use scripts. The agent went on where the script had nothing more to say.",
        "Add a step to the script, or give it an answer for every further call.",
    ),
    ErrorEntry(
        "recording-exhausted",
        "A replayed model was called more often than its recording has answers.",
        "The agent, its tools or the answers are no longer those of the recorded run, or two runs share a replay.",
        "Record again, or give each run a replay of its own.",
    ),
    ErrorEntry(
        "recording-differs",
        "A replayed model was asked something else than what was recorded.",
        "The error names the first place that differs. The model's name and labels may differ, nothing else.",
        "Record again, or pass `checks_requests=False` to be answered in order whatever is asked.",
    ),
    ErrorEntry(
        "recording-exists",
        "A recording would be written to a file that holds something.",
        "Two runs in one file are no recording: a replay would mix them.",
        "Delete the file, or record to another path.",
        _USAGE,
    ),
    ErrorEntry(
        "not-a-recording",
        "The file holds no recorded model calls.",
        "Read are recordings of RecordingLlm, httprr files, and lines of {method, response}.",
        "Check which file was meant. A record of a session is another thing: it is shown by `agentsession replay`.",
        _USAGE,
    ),
    ErrorEntry(
        "no-session",
        "A model that the host answers was called where there is no host.",
        "HostLlm asks through the session that its agent runs in; here the agent runs by itself.",
        "Open a session with AdkExecutor; without a host use ScriptedLlm or ReplayLlm.",
    ),
    ErrorEntry(
        "file-missing",
        "A file that was named cannot be read.",
        "It does not exist, is a folder, or may not be opened.",
        "Check the path.",
        _USAGE,
    ),
    ErrorEntry(
        "output-failed",
        "The output cannot be written.",
        "The disk is full, or the device failed. A turn that ran was aborted: its record would not be complete.",
        "Make room or write elsewhere, and run it again; with `--store` what was recorded is kept.",
    ),
    ErrorEntry(
        "unknown-id",
        "There is no rule and no error with this id.",
        "`explain` takes the id in brackets from an error, or a rule id such as LIFE-05.",
        "`agentsession rules` lists all rules; docs/reference/errors.md all errors.",
        _USAGE,
    ),
    ErrorEntry(
        "unknown-call",
        "A line on stdin asks for a call that does not exist.",
        "With `--json`, each line is an object whose `call` is stream, respond, steer, update, abort or close.",
        'Send, for example, `{"call":"stream","input":[{"kind":"message","content":"Hello"}]}`.',
        _USAGE,
    ),
    ErrorEntry(
        "internal",
        "Something broke inside agentsession.",
        "This is a defect of this project, not of the agent.",
        "Run again with `--debug` and report the traceback.",
        Exit.HARNESS,
    ),
)
_RECORDS: Final = (
    ErrorEntry(
        "several-sessions",
        "The file holds the records of several sessions, and a report is of one.",
        "`agentsession map` writes one record after the other. In a store two agents or users may"
        " have used the same id.",
        "Name the session: `agentsession report FILE --session ID`.",
        _USAGE,
    ),
    ErrorEntry(
        "report-exists",
        "The report would overwrite a file that is no report.",
        "Without `-o` the page is named after the record, and something else has that name.",
        "Name the page: `agentsession report FILE -o page.html`.",
        _USAGE,
    ),
    ErrorEntry(
        "bad-json",
        "A line is not JSON.",
        "The line and the column are named. NaN, infinities and duplicate keys are not JSON here.",
        "Mend the line, or leave it out with `--skip-bad`.",
        _USAGE,
    ),
    ErrorEntry(
        "schema",
        "An event or an input does not have the shape that the contract gives it.",
        "The place is a JSON pointer. A known type with a wrong field is an error; an unknown type is kept.",
        "Compare with `agentsession schema event`; a field that is absent is left out, not null.",
        _USAGE,
    ),
    ErrorEntry(
        "version",
        "A record or a peer speaks another major version of the contract.",
        "A minor version is read, with what is unknown kept; a major version is refused.",
        "Use a release of agent-session-protocol that speaks it.",
        _USAGE,
    ),
    ErrorEntry(
        "protocol-violation",
        "A rule of the contract was broken.",
        "The rule's id stands in the brackets, and `blame` says who broke it: host, executor or peer.",
        "`agentsession explain RULE-ID` says what the rule asks for.",
    ),
    ErrorEntry(
        "invalid-input",
        "A value that the contract cannot take was handed in.",
        "An id with a separator, content of the wrong kind, or an option that does not fit.",
        "See `expected` in the error.",
        _USAGE,
    ),
    ErrorEntry(
        "empty-record",
        "The file holds no event.",
        "It is empty, or every line was skipped.",
        "Record one with `agentsession run MODULE:agent -p '...' --json > record.ndjson`.",
        _USAGE,
    ),
)
_SESSIONS: Final = (
    ErrorEntry(
        "error", "An error without an id of its own.", "See the line itself.", "Add `--debug` for the traceback."
    ),
    ErrorEntry("session", "The session cannot serve this call in its state.", "The line says more.", "See `fix`."),
    ErrorEntry(
        "stream-active",
        "A stream was started while another one runs.",
        "One stream runs at a time (rule LIFE-07). Nothing was recorded.",
        "Steer or answer the running stream, abort it, or wait for its end.",
    ),
    ErrorEntry(
        "nothing-to-continue",
        "There is no message to start a turn with, and nothing that waits was answered.",
        "`stream()` without a message continues a turn that waits for the host; here none does, or no answer applied.",
        "Send a message, or answer a pending request by its id.",
    ),
    ErrorEntry(
        "session-closed",
        "The session is closed.",
        "It was closed by the host, by an abort that ran into its grace time, or by a broken connection.",
        "Load it again, where the executor can, or open a new one.",
    ),
    ErrorEntry(
        "session-busy",
        "The session is open elsewhere.",
        "A stored session is open in one place at a time. The lock of a process that is gone is taken over.",
        "Close it in the other place, or continue in a copy of it.",
        Exit.BUSY,
    ),
    ErrorEntry(
        "session-not-found",
        "There is no such session for this user and this agent.",
        "Sessions are kept apart by agent, user and id.",
        "Check the id and the `--store` file.",
        _USAGE,
    ),
    ErrorEntry(
        "session-exists",
        "A new session was asked for with an id that is taken.",
        "Ids are unique for a user and an agent.",
        "Choose another id, or load the session.",
        _USAGE,
    ),
    ErrorEntry(
        "cursor-gone",
        "The cursor is beyond the record, or before what is still kept.",
        "A cursor is the seq of the last event that was read; 0 reads from the start.",
        "Read again from a cursor in the range that `expected` names.",
    ),
    ErrorEntry(
        "acp-agent-start",
        "The ACP agent cannot be started.",
        "Its command is not there, ends at once, does not answer `initialize`, or speaks another version.",
        "Run the command by hand: it must speak ACP on its standard input and output.",
        _USAGE,
    ),
    ErrorEntry(
        "acp-agent-lost",
        "The process of an ACP agent has ended, and with it what it was doing.",
        "It crashed or was ended, or it did not stop within the grace time and was killed.",
        "Open a new session; where the agent can load sessions, the next turn starts it again by itself.",
    ),
    ErrorEntry(
        "acp-agent-timeout",
        "An ACP agent did not answer `session/new` or `session/load` in time, and its process was ended.",
        "It hangs, or what it starts first, such as tool servers, takes longer than `start_s`.",
        "Look into the agent's own log, or give it more time: `AcpExecutor(start_s=...)`.",
    ),
    ErrorEntry(
        "acp-agent-error",
        "An ACP agent answered a prompt, or the opening of a session, with an error.",
        "What it said is not shown, for it may hold a secret; its error code is.",
        "Look into the agent's own log.",
    ),
    ErrorEntry(
        "acp-auth-required",
        "An ACP agent wants a login before it works.",
        "It answered with ACP's error for that.",
        "Log in with the agent's own command, or give it its key by `env`.",
    ),
    ErrorEntry(
        "abort-timeout",
        "The agent did not stop within the grace time after an abort.",
        "Its code does not react to cancellation. The session is closed; what it still does is not recorded.",
        "Look for blocking code in the agent or its tools.",
    ),
    ErrorEntry(
        "hook-blocked",
        "A hook of the host does not allow the session.",
        "The host's interceptor answered `block` at `session_start`; the error says which hook it was.",
        "Do what the hook's message says, or open the session without that hook.",
    ),
    ErrorEntry(
        "hooks-invalid",
        "The hooks that were given cannot be used, so nothing starts.",
        "One is no hook, names a point or a key that there is not, has the id of another, or its program is missing.",
        "Mend what `where:` names. `agentsession hooks check FILE` looks at a file of hooks without running an agent.",
        _USAGE,
    ),
    ErrorEntry(
        "connection-lost",
        "The executor vanished while its events were read.",
        "The process or the connection that ran the agent is gone.",
        "Load the session: what was acknowledged is in the record.",
    ),
    ErrorEntry(
        "run-ended",
        "Agent code went on after its turn was settled.",
        "Raised inside an executor that emits or waits too late; it is not shown to hosts.",
        "Let the executor's code end when it is cancelled.",
    ),
    ErrorEntry(
        "unimplemented",
        "The agent's executor cannot do this.",
        "Its descriptor does not declare the capability; see `agentsession inspect MODULE:agent`.",
        "Do without, or use an executor that declares it.",
        _USAGE,
    ),
    ErrorEntry(
        "configuration",
        "Something outside the session is missing or wrong.",
        "An agent that cannot be hosted, an option that does not fit, or a tool that cannot be described.",
        "See `expected` and `fix` in the error.",
        _USAGE,
    ),
    ErrorEntry(
        "policy",
        "A policy cannot be used, so nothing starts.",
        "A rule that is not understood must not turn into an allow, and a file that is read in part would lose its"
        " denials. So would one that others may change, where it is an administrator's.",
        "Mend what stands after `where:`; `agentsession policy check FILE` reads a file again and tries its examples.",
        _USAGE,
    ),
    ErrorEntry(
        "remembered-file",
        "The file of remembered answers cannot be used.",
        "It is not understood, cannot be read or written, or can be changed by others: a line in it lets a tool run"
        " unasked.",
        "Mend it, or move it away; then everything is asked again.",
        _USAGE,
    ),
)

_EXECUTORS: Final = (
    ErrorEntry(
        "adk-refused",
        "The agent has a part whose tool calls nobody could grant or deny.",
        "For example a code executor, a tool that the model's provider runs, or an agent that runs elsewhere.",
        "Remove the part, or opt in as the error says, knowing that it then runs without being asked about.",
        _USAGE,
    ),
    ErrorEntry(
        "history-window",
        "The window of recent events that ADK is handed is too small.",
        "A turn needs the events of the turns just before it at hand.",
        "Give more events, or None for the whole history.",
        _USAGE,
    ),
    ErrorEntry(
        "tree-changed",
        "A session that waits was loaded with agents that cannot go on with it.",
        "ADK finds its place by the names of the agents: in a tree of another shape it would leave agents out.",
        "Load it with the agents and services that it was opened with; change them when nothing waits.",
        _USAGE,
    ),
    ErrorEntry(
        "limit-unsupported",
        "A limit was set that this executor cannot keep.",
        "A budget needs the cost of each model call, a number of calls needs an executor that counts them. Nothing is "
        "limited silently.",
        "Leave it out; the error names the limits that this executor keeps. A budget can be kept where an executor "
        "counts tokens, if you say what its models cost: `prices`, `--price`.",
        _USAGE,
    ),
    ErrorEntry(
        "too-many-waiting",
        "No new turn is started: too many wait for the host, each with a run that has to be kept for it.",
        "A run that waits inside holds memory. Those whose turn can be answered without them were let go already.",
        "Answer or abort turns that wait, give turns a deadline, or raise `max_kept_runs` of the executor.",
    ),
    ErrorEntry(
        "agent-name",
        "The agent's name cannot be used.",
        "A name is letters, digits and underscores, not starting with a digit. ADK keeps `user` for itself.",
        "Rename the agent.",
        _USAGE,
    ),
    ErrorEntry(
        "tool-name",
        "Two tools have the same name.",
        "A tool of the host is named like one of the agent's own, or the host offers two of one name.",
        "Rename the host's tool.",
        _USAGE,
    ),
    ErrorEntry(
        "tools-missing",
        "The agent needs tools that the host does not offer.",
        "Its descriptor lists them as required; see `agentsession inspect MODULE:agent`.",
        "Offer them: `--tools MODULE:NAME`, or `Host(tools=[...])`.",
        _USAGE,
    ),
    ErrorEntry(
        "not-adk",
        "The file holds JSON, but nothing that ADK writes.",
        "`map` reads events, session dumps and test files of google-adk.",
        "Check which file was meant. A record of agentsession itself is shown by `agentsession replay`.",
        _USAGE,
    ),
    ErrorEntry(
        "no-file",
        "A file that was to be mapped cannot be read.",
        "It does not exist, is a folder, or may not be opened.",
        "Check the path; `-` reads standard input.",
    ),
    ErrorEntry(
        "asyncio-only",
        "google-adk runs on asyncio only.",
        "The host was started on another event loop, such as trio.",
        'Run the host on asyncio, for example with `anyio.run(main, backend="asyncio")`.',
        _USAGE,
    ),
    ErrorEntry(
        "nothing-to-resume",
        "ADK has nothing that it could go on with.",
        "The turn waits, but none of the answers belongs to what ADK's run waits for.",
        "Abort the turn, and send the message again.",
    ),
    ErrorEntry(
        "executor-not-entered",
        "An executor was used before it was entered.",
        "It owns the tasks of its sessions, and has none before `async with`.",
        "Write `async with executor:` around what uses it.",
    ),
    ErrorEntry(
        "store-capability",
        "The record store cannot do what was asked of it.",
        "Listing all records needs `browse()`, which a store may have or not (`agentsession.protocol.RecordCatalog`).",
        "Name the agent and the user, or use a store that has it, such as `SqliteRecordStore`.",
    ),
    ErrorEntry(
        "store-missing",
        "There is no record store to load from.",
        "Sessions are loaded, listed, deleted and forked in a store.",
        "Pass `store=` to the call or to the executor; on the command line `--store FILE`.",
        _USAGE,
    ),
    ErrorEntry(
        "models-invalid",
        "Models or their policy cannot be used as given.",
        "`ModelRouter` takes names of models, and `silent` or `ask` as the policy.",
        'Write `ModelRouter(["gemini-2.5-flash"], policy="ask")`.',
        _USAGE,
    ),
    ErrorEntry(
        "MODEL_UNAVAILABLE",
        "No model is left that could answer.",
        "The agent's model and those to use instead are overloaded, out of quota or do not exist, or nobody agreed to"
        " use another. The message names each and why.",
        "Try again later, or name another model: `--fallback MODEL`, `ModelRouter([...])`.",
    ),
    ErrorEntry(
        "record-store",
        "The record could not be stored or read, and the session was stopped.",
        "What cannot be stored is not shown either: the record is the truth. Another program holds a locked database.",
        "Mend the store (disk, rights, connection), then load the session.",
    ),
)

_CALLS: Final = (
    ErrorEntry(
        "no_channel",
        "A call or a question needed a person, and nobody could be asked.",
        "There is no terminal, or the host has no channel. What would be asked is denied.",
        "Allow the tool by name (`--allow GLOB`), leave it waiting (`--on-ask pause`), or run it at a terminal.",
        None,
    ),
    ErrorEntry(
        "policy_error",
        "The policy failed or returned no decision, so the call was denied.",
        "An exception, a condition that failed or must be awaited, or a value that is no decision.",
        "Mend the policy; at level debug the logger `agentsession.host` has the traceback.",
        None,
    ),
    ErrorEntry(
        "unknown_decision",
        "The policy said a word that this host does not know, so the call was denied.",
        "The words are allow, ask_user and deny, spelled exactly so.",
        "Mend the policy.",
        None,
    ),
    ErrorEntry(
        "channel_error",
        "Asking the person failed, so the answer is no.",
        "The channel raised an exception, or what it waited for was cancelled.",
        "Mend the channel; at level debug the logger `agentsession.host` has the traceback.",
        None,
    ),
    ErrorEntry(
        "channel_full",
        "Too many questions wait for people already, so this one was refused.",
        "A `QueueChannel` takes as many as its `capacity` says.",
        "Answer what waits, or raise the capacity: `QueueChannel(capacity=...)`.",
        None,
    ),
    ErrorEntry(
        "timed_out",
        "Nobody answered in time: a question counts as cancelled, a call as refused, and its turn has ended.",
        "The host was told how long people have (`question_timeout_s`), and nobody answered until then.",
        "Say it again when somebody is there, or give people longer: `Host(question_timeout_s=...)`.",
        None,
    ),
    ErrorEntry(
        "unsafe_url",
        "A question would send a person to an address that the host does not show, so it was cancelled.",
        "Taken are https, and http of this machine, without a user in it and without signs that addresses do not have.",
        "Mend what asks the question, such as the agent's configuration of a login.",
        None,
    ),
    ErrorEntry(
        "unclear_answer",
        "What the channel returned is no clear answer, so it is a no.",
        "Only `Approval.yes()` and `True` are a yes; a question takes an `ElicitationAnswer` with the question's id.",
        "Return one of these from the channel.",
        None,
    ),
    ErrorEntry(
        "invalid_edit",
        "The arguments that a person edited do not fit, three times over, so the call was denied.",
        "They are checked like the model's own: JSON, then the tool's schema.",
        "Edit them again when the model asks again; `explain invalid_arguments` says what is checked.",
        None,
    ),
    ErrorEntry(
        "unsupported_needs",
        "The agent asks for something that this host does not know, so the call was denied.",
        "A request needs a result or a grant; another executor may know more.",
        "Use a release of agent-session-protocol that knows it.",
        None,
    ),
    ErrorEntry(
        "host_error",
        "The host itself failed at this request; nobody granted it.",
        "A defect of the host, or an answer that the session refused.",
        "The logger `agentsession.host` has the traceback.",
        None,
    ),
    ErrorEntry(
        "hook_blocked",
        "The tool ran, and a hook of the host keeps its result from the model.",
        "A hook answered `block` at `after_tool`; the message is what it says instead, `by` which hook it was.",
        "Change the hook, or what the tool returns.",
        None,
    ),
    ErrorEntry(
        "invalid_arguments",
        "The arguments of a call do not fit the tool's schema; nothing ran.",
        "The model was told the place, a JSON pointer, and what was expected.",
        "Nothing, if the model tries again. If it does so in vain, describe the arguments better.",
        None,
    ),
    ErrorEntry(
        "unknown_tool",
        "The host has no tool of this name; nothing ran.",
        "The model invented it, or the tool was not offered.",
        "Offer it: `--tools MODULE:NAME`, or `Host(tools=[...])`.",
        None,
    ),
    ErrorEntry(
        "tool_failed",
        "The tool raised an exception; its effects may be partial.",
        "The model was told the exception's type, and its message unless the host hides it.",
        "Mend the tool; the logger `agentsession.host` has the traceback.",
        None,
    ),
    ErrorEntry(
        "outcome_unknown",
        "The tool had started when its host ended, so what it did is not known. It is not run again.",
        "The start of each host tool is in the record before it runs; a host that loads the session reads it there.",
        "Look at what the tool changes; then ask the agent to go on, or to do it again.",
        None,
    ),
    ErrorEntry(
        "tool_timeout",
        "The tool did not end in the time it may take; its effects may be partial.",
        "A plain function that blocks cannot be stopped: `stillRunning` says that its thread goes on.",
        "Make it faster, or give it more time: `@tool(timeout_s=...)`, `Host(tool_timeout_s=...)`.",
        None,
    ),
    ErrorEntry(
        "server_lost",
        "The connection to a tool server was lost while it worked on a call; the call may have had effects.",
        "The server ended, or what is between you and it did. A call that may have arrived is never sent twice.",
        "Look at `McpTools.stderr`, or the server's own log. The next call starts or reaches it anew.",
        None,
    ),
    ErrorEntry(
        "server_unavailable",
        "A tool server cannot be reached, and the call was not sent.",
        "It ended and cannot be started, or its address does not answer. After a failure the next attempt waits for one"
        " second, then two, four and so on to a minute.",
        "Start it by hand to see what it says, or look at `McpTools.stderr`.",
        None,
    ),
    ErrorEntry(
        "unserializable_result",
        "The tool ran, and returned what JSON cannot say.",
        "`agentsession.protocol.to_json` lists what is converted; the place is a JSON pointer.",
        "Return JSON, a dataclass, a pydantic model or content parts.",
        None,
    ),
    ErrorEntry(
        "subagent_failed",
        "The sub-agent could not work, failed or refused; what it had said is in `partialText`.",
        "Its session keeps the whole of it. The agent that called it goes on.",
        "Read the record of the sub-agent's session; try its agent alone.",
        None,
    ),
    ErrorEntry(
        "subagent_limit",
        "The sub-agent was stopped by a limit, which `reason` names; what it had said is in `partialText`.",
        "A sub-agent has limits of its own, and never more than is left to the agent that called it.",
        "Give it smaller tasks, or more: `SubagentTool(..., options=ExecutionOptions(limits=...))`.",
        None,
    ),
    ErrorEntry(
        "subagent_no_result",
        "The sub-agent ended without calling `complete_task`, though it was reminded once.",
        "Where a result is wished for, what an agent merely says is none.",
        "Say in its instruction what the result is and that `complete_task` takes it.",
        None,
    ),
    ErrorEntry(
        "subagent_refused",
        "The sub-agent was not begun: it is at work above, or the agents stand too deep in one another.",
        "An agent that calls itself, or agents that call one another without end, would never come to a result.",
        "Leave the tool out of that sub-agent's `tools`, or raise `SubagentTool(..., max_depth=...)`.",
        None,
    ),
    ErrorEntry(
        "task_complete",
        "The sub-agent had given its result, so nothing more of it runs.",
        "`complete_task` ends its task; a tool that ran after it could change what the result says.",
        "Have the agent call `complete_task` last, and nothing beside it.",
        None,
    ),
    ErrorEntry(
        "tail_call_denied",
        "A tool ran and handed over to another, which was not allowed to run.",
        "The other call passes the policy, the hooks and the person like one of the agent's own. What the first tool"
        " did has been done.",
        "Allow the other tool, or let the first one do without it.",
        None,
    ),
    ErrorEntry(
        "tail_call_limit",
        "Tools handed over to each other more than three times.",
        "A chain that long is mostly one that never ends.",
        "Let the tools call each other's functions directly where no decision is needed in between.",
        None,
    ),
    ErrorEntry(
        "cancelled",
        "The tool was stopped by an abort; its effects may be partial.",
        "It had started, so what it did is not known. A call that had not started has the status cancelled.",
        "Look at what the tool works on before it is called again.",
        None,
    ),
)

_ENDS: Final = (
    ErrorEntry(
        "max_turns",
        "The turn has made as many model steps as it may.",
        "A call that is made again is no further step, and neither are those of sub-agents.",
        "Give it more, `--max-turns`, or a smaller task. The last word of the agent says how far it came.",
        Exit.MAX_TURNS,
    ),
    ErrorEntry(
        "max_llm_calls",
        "The turn has made as many model calls as it may.",
        "Calls that were made again and those of sub-agents count too.",
        "Give it more, `--max-calls`, or a smaller task. The last word of the agent says how far it came.",
        Exit.MAX_LLM_CALLS,
    ),
    ErrorEntry(
        "max_budget",
        "The turn has cost what it may cost, or nobody knows what one of its model calls has cost.",
        "A call counts when it is over, so the last one may go beyond. What cannot be counted cannot be kept below a"
        " limit.",
        "Give it more, `--max-budget`; where a cost is not known, say the price of the model that is named, `--price`.",
        Exit.MAX_BUDGET,
    ),
    ErrorEntry(
        "max_time",
        "The turn was at work for as long as it may.",
        "Time counts while the agent and the tools of the host work, not while people are waited for.",
        "Give it more, `--max-time`. A tool that was cut off has the status unknown: look at what it works on.",
        Exit.MAX_TIME,
    ),
    ErrorEntry(
        "deadline",
        "The turn's deadline has come.",
        "A deadline is a moment, whether the turn works or waits.",
        "Say a later one, `--deadline`, and send a message: the session goes on.",
        Exit.DEADLINE,
    ),
    ErrorEntry(
        "LOOP_DETECTED",
        "The agent went in circles, was told so, did it again, and the turn was stopped.",
        "Its last steps were the same calls with the same results, or it said the same text over and over.",
        "Say what it should do instead. Where a tool waits for something, `ToolAnnotations(may_repeat=True)`; else"
        " `--no-loop-detection`.",
    ),
)

ERRORS: Final[Mapping[str, ErrorEntry]] = MappingProxyType(
    {entry.id: entry for entry in (*_COMMAND_LINE, *_RECORDS, *_SESSIONS, *_EXECUTORS, *OVER_HTTP, *_CALLS, *_ENDS)}
)
"""Every error id, with what it means."""


def exit_for(error_id: str) -> Exit:
    """The exit code of an error; one that is not in the table is a failure."""
    entry = ERRORS.get(error_id)
    return entry.exit if entry is not None and entry.exit is not None else Exit.FAILED


_ENDS_NOTHING: Final = "No exit code: the model is told, and the turn goes on."


def errors_page() -> str:
    """The reference page of all errors, in Markdown: a heading for each id."""
    groups: tuple[tuple[str, Iterable[ErrorEntry]], ...] = (
        ("The command line", _COMMAND_LINE),
        ("Records and input", _RECORDS),
        ("Sessions", _SESSIONS),
        ("Executors and adapters", _EXECUTORS),
        ("Over HTTP", OVER_HTTP),
        ("Denials and failed calls", _CALLS),
        ("Limits and circles that end a turn", _ENDS),
    )
    out = [
        "# Errors",
        "",
        "<!-- Made by `agentsession explain --all`; do not edit. -->",
        "",
        "An error says what was wrong, where, what it got, what it expected, and what to do.",
        "`agentsession explain ID` prints what stands here.",
        "An id such as `LIFE-05` is a rule of the contract: see [rules](rules.md).",
    ]
    for title, entries in groups:
        out += ["", f"## {title}"]
        for entry in entries:
            out += ["", f"### {entry.id}", "", entry.sentence, entry.why, "", f"What to do: {entry.fix}"]
            out += ["", f"Exit code: {int(entry.exit)}." if entry.exit is not None else _ENDS_NOTHING]
    return "\n".join(out) + "\n"
