package harness

import "strings"

// apart are the tests that ask for what no cluster promises, by the test's name, with
// the reason. Everything else that starts a server is held to a cluster as well.
var apart = map[string]string{
	// What a single server keeps in its data directory is in PostgreSQL and the store.
	"TestLayerBegunOnceOverAKill": "it removes answers.log, and a cluster keeps answers with the records",
	"TestMoveAcrossOnceOverAKill": "it removes answers.log, and a cluster keeps answers with the records",
	"TestSessionIdempotency":      "it removes answers.log, and a cluster keeps answers with the records",
	"TestCallsByKeyOverAKill":     "it removes answers.log, and a cluster keeps answers with the records",
	// A rate is counted at each node (fleet.md, Requests).
	"TestCodeRateLimits":           "a rate counts on each node",
	"TestSettingsComeInTheirOrder": "a rate counts on each node",
	"TestScriptsQueue":             "a queue of scripts is a node's",
	// The code workspace is virtual: what others change in the directory is not recorded.
	"TestExecute":            "it puts programs into the code directory, which is a copy",
	"TestExecuteStaysInside": "it puts files into the code directory, which is a copy",
	// Scripts save into a virtual workspace.
	"TestScriptsSave":          "its output directory is a workspace with a directory",
	"TestScriptsOnceOverAKill": "its output directory is a workspace with a directory",
	"TestScriptsOfATask":       "its output directory is a workspace with a directory",
	"TestScriptsStayInside":    "it puts links into the output directory, which is a copy",
	// serve DIR is one server's; verbs that work on files of a data directory too.
	"TestGreeting":                "a node greets with its own address, not the balancer's",
	"TestGreetingInJSON":          "a node greets with its own address, not the balancer's",
	"TestDemo":                    "its second half works on a data directory without a server",
	"TestMCPServeDirectory":       "serve DIR is one server's",
	"TestServeFolder":             "serve DIR is one server's",
	"TestMCPDefault":              "it gives the server a directory, which one node has",
	"TestForkUpkeep":              "it has verbs work on directories that several nodes have",
	"TestVerifyRepair":            "it has verbs work on a history in the data directory",
	"TestVerifyReportsWhatIsLost": "it damages a history in the data directory",
	"TestVerifyRefsOnDisk":        "it has verbs work on a history in the data directory",
	"TestUpgradeFirstFormat":      "it puts a single server's data directory of before in place",
	"TestUpgradeSecondFormat":     "it puts a single server's data directory of before in place",
	"TestUpgradeThirdFormat":      "it puts a single server's data directory of before in place",
	"TestCodeFolderGone":          "a node makes the code directory again, which is its copy",
	"TestDoctor":                  "doctor looks at the directories of one node, the one that has the data directory",
	"TestDoctorFindsWhatHurts":    "it breaks a directory and the data directory of one server",
	"TestBackupUnderLoad":         noBackup, "TestBackupSecondTime": noBackup, "TestBackupOfNothing": noBackup, "TestBackupRefuses": noBackup,
	"TestBackupServerKilled": noBackup, "TestBackupCutHistory": noBackup, "TestRestoreDamaged": noBackup, "TestRestorePublishes": noBackup,
	"TestRestorePublishesForks":   noBackup,
	"TestStockGitAfterARestore":   noBackup,
	"TestExportWorkspace":         "it has umbra export read a data directory without a server, and a node's is a copy",
	"TestUnreadable":              "it makes the data directory another user's, and each node has its own",
	"TestTokenVerbWithoutAServer": "it adds a token to a data directory, and a cluster's are in PostgreSQL (TestTokens of tests/cluster)",
	"TestForkUnmade":              "it counts files of forks in the data directory, and a node makes a fork's when it opens it",
	"TestToolsetVirtual":          "it looks at a repository in the data directory, which is a copy",
	// umbra gc is about the histories that the asked server has.
	"TestRetention": "it has one node's umbra gc report on another's directory",
	// What no history has of a layer is at the node that had the directory (fleet.md, Directories).
	"TestForkLayerParentDeleted": "it asks for ignored files of layers whose directory's workspace was deleted, which one node has",
	// One node of several is killed there.
	"TestForkPathTakenAndKilled":          "it kills one process at a system call, and another node may make the fork",
	"TestForkKilledAtCalls":               "it kills one process at a system call, and another node may make the fork",
	"TestForkParentDeletionKilledAtCalls": "it kills one process at a system call, and another node may have the fork",
	"TestLayerAppliedOnceOverAKill":       "it kills one process at a system call, and another node may apply the layer",
	// When a session was used last is exact to a minute.
	"TestSessionExpires": "it has sessions of 2 s, and the time of use is exact to a minute",
}

// noBackup is for tests of umbra backup and restore, which are about one data directory.
const noBackup = "a cluster's nodes refuse umbra backup: PostgreSQL and the store are backed up"

func apartFor(test string) string {
	top, _, _ := strings.Cut(test, "/")
	return apart[top]
}
