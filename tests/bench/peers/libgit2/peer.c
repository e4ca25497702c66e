/* Records changes with libgit2, one after another: a peer of the benchmarks.
 *
 *   libgit2-peer REPOSITORY [fsync]
 *
 * Reads "<length of path> <length of data>\n<path><data>" on standard input,
 * commits each on HEAD as one changed file, and answers "ok\n". */
#include <git2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int rc, const char *what) {
	if (rc < 0) {
		const git_error *e = git_error_last();
		fprintf(stderr, "%s: %s\n", what, e ? e->message : "failed");
		exit(1);
	}
}

static char *take(size_t n) {
	char *p = malloc(n + 1);
	if (!p || fread(p, 1, n, stdin) != n) {
		fprintf(stderr, "the input ends early\n");
		exit(1);
	}
	p[n] = 0;
	return p;
}

int main(int argc, char **argv) {
	git_repository *repo;
	git_oid tip;
	size_t path_len, data_len;

	if (argc < 2) return 2;
	git_libgit2_init();
	if (argc > 2 && !strcmp(argv[2], "fsync"))
		must(git_libgit2_opts(GIT_OPT_ENABLE_FSYNC_GITDIR, 1), "fsync");
	must(git_repository_open(&repo, argv[1]), "open");
	must(git_reference_name_to_id(&tip, repo, "HEAD"), "HEAD");

	while (scanf("%zu %zu", &path_len, &data_len) == 2 && getchar() == '\n') {
		char *path = take(path_len), *data = take(data_len);
		git_commit *parent;
		git_tree *base, *tree;
		git_signature *who;
		git_oid blob, root;
		const git_commit *parents[1];
		git_tree_update change = { GIT_TREE_UPDATE_UPSERT, { { 0 } }, GIT_FILEMODE_BLOB, path };

		must(git_blob_create_from_buffer(&blob, repo, data, data_len), "blob");
		must(git_commit_lookup(&parent, repo, &tip), "parent");
		must(git_commit_tree(&base, parent), "tree");
		change.id = blob;
		must(git_tree_create_updated(&root, repo, base, 1, &change), "new tree");
		must(git_tree_lookup(&tree, repo, &root), "new tree");
		must(git_signature_now(&who, "bench", "bench@umbra.invalid"), "signature");
		parents[0] = parent;
		must(git_commit_create(&tip, repo, "HEAD", who, who, NULL, path, tree, 1, parents), "commit");

		git_signature_free(who);
		git_tree_free(tree);
		git_tree_free(base);
		git_commit_free(parent);
		free(path);
		free(data);
		puts("ok");
		fflush(stdout);
	}
	git_repository_free(repo);
	git_libgit2_shutdown();
	return 0;
}
