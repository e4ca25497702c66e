// Package model holds the random test of histories and reverts: long random
// sequences of what tasks, subtasks and people do to one workspace, with
// reverts of every scope, restarts and power cuts among them, judged after each
// step by rules that are simple enough to be believed (check_test.go,
// oracle_test.go).
//
// A sequence is made while it runs, from a seed that is printed. One that
// breaks a rule is shrunk and printed as a script (script_test.go), which
// becomes a case of TestScripts, and where it can a table case beside the code
// that was wrong.
//
//	UMBRA_SEED=n        run that seed alone, and tell every step with -v
//	UMBRA_SCRIPT=text   TestScripts runs that script alone
//	UMBRA_MODEL_TIME=1h for so long, new seeds each time
//	UMBRA_SOAK=1        for ten minutes
//	UMBRA_MODEL_CUTS=1  with power cuts between the steps, on a machine in memory; 5: five times as often
package model
