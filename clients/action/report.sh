#!/bin/sh
# Writes the job's summary, and one comment on the pull request, which later runs
# find by its marker and update. Names and titles are data: nothing in them is
# markup. There is no file content in it.
set -eu

dir=$RUNNER_TEMP/umbra-replay
text=$dir/summary.md
mkdir -p "$dir"
[ -s "${REPLAY_REPORT:-}" ] || { REPLAY_REPORT=$dir/none.json && echo '{}' >"$REPLAY_REPORT"; }
for file in lines goal; do
	[ -f "$dir/$file" ] || : >"$dir/$file"
done

# esc writes a character that could be markup as a reference, and leaves out what
# changes the direction or the line.
jq -r --arg task "$INPUT_TASK" --arg problem "${REPLAY_PROBLEM:-}" --rawfile lines "$dir/lines" --rawfile goal "$dir/goal" '
def esc: [explode[] |
	if (. >= 48 and . <= 57) or (. >= 65 and . <= 90) or (. >= 97 and . <= 122) or . == 32 or . == 45 or . == 46 or . == 47 then [.] | implode
	elif . < 32 or . == 127 or (. >= 128 and . <= 159) or (. >= 8232 and . <= 8238) or (. >= 8294 and . <= 8297) or . == 8206 or . == 8207 then "\u00b7"
	else "&#\(.);" end] | add // "";
def code: "<code>\(esc)</code>";
def count($n; $one; $many): "\($n) \(if $n == 1 then $one else $many end)";
def number: if . == "-" then 0 else tonumber end;
. as $report
| (reduce ($lines | split("\n")[] | select(. != "")) as $l ({at: null, files: []};
	if $l | startswith("commit ") then .at = $l[7:]
	else ($l | split("\t")) as $f | .files += [{commit: .at, added: $f[0], removed: $f[1], path: ($f[2:] | join("\t"))}] end) | .files) as $files
| ([$report.steps[]? | {key: .commit, value: (.subtask_id // "")}] | from_entries) as $subtask
| ($files | map(. + {subtask: ($subtask[.commit] // "")}) | group_by([.subtask, .path])
	| map({subtask: .[0].subtask, path: .[0].path, steps: length, binary: any(.added == "-"), added: (map(.added | number) | add), removed: (map(.removed | number) | add)})) as $rows
| "### umbra: task \($task | code)",
"",
(($goal | rtrimstr("\n")) as $g | if $g == "" then empty else ($g | code), "" end),
(if $problem != "" then "❌ \($problem | esc)." else empty end),
(if $report.steps == null then empty
elif $report.broken != null then
	($report.steps[] | select(.step == $report.broken)) as $s
	| "❌ Step \($s.step) of \($report.steps | length) broke: \($s.title | code), \($s.outcome | esc)\(if $s.subtask_id then ", subtask \($s.subtask_id | code)" else "" end), commit \($s.commit[0:12] | code).",
	($s.conflicts[]? | "- conflict in \(.path | code): \(.reason | esc)")
elif $report.ok | not then "❌ The history is not as recorded."
elif $report.proven then "✅ \(count($report.steps | length; "step"; "steps")) replayed; every tree is the recorded one, hash for hash."
else "✅ \(count($report.steps | length; "step"; "steps")) replayed onto another state." end),
"",
(if ($rows | length) == 0 then empty else
	"| subtask | files | lines | undo |", "|---|---|---|---|",
	($rows | group_by(.subtask)[] | . as $g | $g[0].subtask as $s
	| "| \(if $s == "" then "(none)" else $s | code end) | \(map(.path) | unique | length) | +\(map(.added) | add) −\(map(.removed) | add) | \(if $s == "" then "`umbra revert --task` \($task | code)" else "`umbra revert --task` \($task | code) `--subtask` \($s | code)" end) |"),
	"",
	"<details><summary>Files</summary>", "",
	"| subtask | file | lines |", "|---|---|---|",
	($rows[:200][] | "| \(if .subtask == "" then "(none)" else .subtask | code end) | \(.path | code) | \(if .binary then "binary" else "+\(.added) −\(.removed)" end) |"),
	(if ($rows | length) > 200 then "", "… and \(($rows | length) - 200) more" else empty end),
	"", "</details>", "",
	"Undo one step: `umbra revert COMMIT`. Add `--dry-run` for a preview. Changes of others stay." end)
' "$REPLAY_REPORT" >"$text"
cat "$text" >>"$GITHUB_STEP_SUMMARY"

[ "$INPUT_COMMENT" = true ] || exit 0
pull=$(jq -r '.pull_request.number // (select(.issue.pull_request) | .issue.number) // empty' "$GITHUB_EVENT_PATH")
if [ -z "$pull" ]; then
	echo "There is no pull request to comment on."
	exit 0
fi

marker="<!-- umbra-replay task=$(printf '%s' "$INPUT_TASK" | tr -cd 'A-Za-z0-9._-') -->"
api=$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/issues

# github calls the API. The token goes by curl's standard input: arguments can be
# seen by other processes.
github() {
	printf 'header = "Authorization: Bearer %s"\n' "$GITHUB_TOKEN" |
		curl --config - --fail --silent --show-error --header 'Accept: application/vnd.github+json' --header 'X-GitHub-Api-Version: 2022-11-28' "$@"
}

comment=
page=1
while :; do
	github --output "$dir/comments.json" "$api/$pull/comments?per_page=100&page=$page"
	# A comment of a person that quotes the marker is not ours: ours begins with it.
	comment=$(jq -r --arg marker "$marker" '[.[] | select((.body // "") | startswith($marker)) | select(.user.type == "Bot")][0].id // empty' "$dir/comments.json")
	[ -z "$comment" ] && [ "$(jq length "$dir/comments.json")" = 100 ] || break
	page=$((page + 1))
done
jq -n --arg marker "$marker" --rawfile text "$text" '{body: ($marker + "\n" + $text[:60000])}' >"$dir/body.json"
if [ -n "$comment" ]; then
	github --output /dev/null --request PATCH --data "@$dir/body.json" "$api/comments/$comment"
else
	github --output /dev/null --request POST --data "@$dir/body.json" "$api/$pull/comments"
fi
