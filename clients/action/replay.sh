#!/bin/sh
# Fetches a task's history, replays it and verifies it. The exit status is 1 if
# either fails; the outputs say how it went.
set -eu

dir=$RUNNER_TEMP/umbra-replay
report=$dir/report.json
history=$dir/history.git
rm -rf "$dir"
mkdir -p "$dir"

out() { printf '%s=%s\n' "$1" "$2" >>"$GITHUB_OUTPUT"; }

# fail says why nothing can be proved, in fixed words: what programs print may hold
# an address with a password.
fail() {
	out proved false
	out problem "$1"
	echo "::error::$1"
	exit 1
}

case $INPUT_TASK in
'' | *[!A-Za-z0-9._-]*) fail "task is not a task id" ;;
esac
case $INPUT_FROM in
'' | -*) fail "from is missing" ;;
https://*@* | http://*@*) fail "from has a user or password in it; use token" ;;
esac

# No other helper is asked, and the token goes to this host alone: redirections
# are not followed.
host=$(printf '%s\n' "$INPUT_FROM" | sed -n 's|^\(https\{0,1\}://[^/]*\).*|\1|p')
export GIT_TERMINAL_PROMPT=0 GIT_ALLOW_PROTOCOL=http:https:file
export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=credential.helper GIT_CONFIG_VALUE_0= GIT_CONFIG_KEY_1=http.followRedirects GIT_CONFIG_VALUE_1=false
if [ -n "$host" ] && [ -n "$UMBRA_TOKEN" ]; then
	export GIT_CONFIG_COUNT=3 GIT_CONFIG_KEY_2="credential.$host.helper"
	# shellcheck disable=SC2016 # the helper's shell reads the variable
	export GIT_CONFIG_VALUE_2='!f() { test "$1" = get && printf "username=umbra\npassword=%s\n" "$UMBRA_TOKEN"; }; f'
fi

git init -q --bare "$history"
git -C "$history" fetch -q --no-write-fetch-head "$INPUT_FROM" '+refs/*:refs/*' || fail "the history could not be fetched"

git -C "$history" for-each-ref --format='%(contents:subject)' "refs/umbra/tasks/$INPUT_TASK/info" >"$dir/goal"

set -- --from "$history" --task "$INPUT_TASK" --report "$report"
[ -z "$INPUT_EXEC" ] || set -- "$@" --exec "$INPUT_EXEC"
[ -z "$INPUT_ONTO" ] || set -- "$@" --onto "$INPUT_ONTO"
replayed=0
# The command after each step does not get the token, nor what sets up later steps:
# it runs what the agent wrote.
(
	unset UMBRA_TOKEN GIT_CONFIG_COUNT GITHUB_ENV GITHUB_PATH GITHUB_OUTPUT GITHUB_STATE GITHUB_STEP_SUMMARY
	exec umbra replay "$@"
) || replayed=$?
[ -s "$report" ] || fail "the task could not be replayed; the log says why"

out report "$report"
out proved "$(jq -r '.proven' "$report")"
out steps "$(jq -r '.steps | length' "$report")"
out broken-step "$(jq -r '.broken // ""' "$report")"

# Lines by file of each step, for the report: names and numbers, no content.
jq -r '.steps[].commit' "$report" | while read -r commit; do
	printf 'commit %s\n' "$commit"
	git -C "$history" -c core.quotePath=false diff-tree -r --root --no-commit-id --numstat --no-renames "$commit"
done >"$dir/lines"

verified=0
if [ "$INPUT_VERIFY" = true ]; then
	workspace=$(printf '%s\n' "$INPUT_FROM" | sed -n 's|^https\{0,1\}://.*/git/\([^/]*\)\.git/*$|\1|p')
	checked=
	if [ -n "$workspace" ]; then
		checked=server
		umbra verify "$workspace" --server "${INPUT_FROM%/git/*}" 2>"$dir/verify" || verified=$?
		cat "$dir/verify" >&2
		if [ "$verified" != 0 ] && grep -q '(forbidden)$' "$dir/verify"; then
			# A token of scope read may fetch all, and have nothing verified.
			echo "::notice::the token may only read: git fsck checks the history that was fetched, the server's own copy is not verified"
			checked= verified=0
		fi
	fi
	[ -n "$checked" ] || git -C "$history" fsck --full --strict --no-dangling --no-progress || verified=$?
	[ "$verified" = 0 ] || out problem "the history is damaged; the log says where"
fi
[ "$replayed" = 0 ] && [ "$verified" = 0 ]
