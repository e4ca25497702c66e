/* Writes what libgit2 sees of a repository, in the form of dump_test.go.
 * Usage: dump REPOSITORY */
#include <git2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int code, const char *what)
{
	if (code >= 0)
		return;
	const git_error *e = git_error_last();
	fprintf(stderr, "%s: %s\n", what, e ? e->message : "unknown error");
	exit(1);
}

static void hex(const char *s)
{
	for (; *s; s++)
		printf("%02x", (unsigned char)*s);
}

static const char *id(const git_oid *oid)
{
	static char bufs[4][GIT_OID_HEXSZ + 1];
	static int next;
	char *buf = bufs[next++ % 4];
	return git_oid_tostr(buf, GIT_OID_HEXSZ + 1, oid);
}

static void dump_refs(git_repository *repo)
{
	git_reference_iterator *it;
	git_reference *ref, *direct;
	int code;

	check(git_reference_iterator_new(&it, repo), "references");
	while ((code = git_reference_next(&ref, it)) == 0) {
		check(git_reference_resolve(&direct, ref), git_reference_name(ref));
		printf("ref %s %s\n", git_reference_name(ref), id(git_reference_target(direct)));
		git_reference_free(direct);
		git_reference_free(ref);
	}
	if (code != GIT_ITEROVER)
		check(code, "next reference");
	git_reference_iterator_free(it);
}

static void dump_commit(git_repository *repo, const git_oid *oid)
{
	git_commit *c;
	git_oid message;
	const char *raw;

	check(git_commit_lookup(&c, repo, oid), "commit");
	raw = git_commit_message_raw(c);
	check(git_odb_hash(&message, raw, strlen(raw), GIT_OBJECT_BLOB), "hash");
	if (git_commit_parentcount(c) > 1) {
		fprintf(stderr, "commit %s has several parents\n", id(oid));
		exit(1);
	}
	printf("commit %s %s %s %lld %s\n", id(oid), id(git_commit_tree_id(c)),
	       git_commit_parentcount(c) ? id(git_commit_parent_id(c, 0)) : "-",
	       (long long)git_commit_time(c), id(&message));
	git_commit_free(c);
}

static void dump_tree(git_repository *repo, const git_oid *oid)
{
	git_tree *tree;
	size_t i, n;

	check(git_tree_lookup(&tree, repo, oid), "tree");
	n = git_tree_entrycount(tree);
	for (i = 0; i < n; i++) {
		const git_tree_entry *e = git_tree_entry_byindex(tree, i);
		printf("entry %s %o ", id(oid), git_tree_entry_filemode_raw(e));
		hex(git_tree_entry_name(e));
		printf(" %s\n", id(git_tree_entry_id(e)));
	}
	git_tree_free(tree);
}

static void dump_blob(git_repository *repo, const git_oid *oid)
{
	git_blob *blob;
	git_oid again;

	check(git_blob_lookup(&blob, repo, oid), "blob");
	check(git_odb_hash(&again, git_blob_rawcontent(blob), git_blob_rawsize(blob), GIT_OBJECT_BLOB), "hash");
	printf("blob %s %lld %s\n", id(oid), (long long)git_blob_rawsize(blob), id(&again));
	git_blob_free(blob);
}

static void dump_tag(git_repository *repo, const git_oid *oid)
{
	git_tag *tag;

	check(git_tag_lookup(&tag, repo, oid), "tag");
	printf("tag %s %s ", id(oid), id(git_tag_target_id(tag)));
	hex(git_tag_name(tag));
	putchar('\n');
	git_tag_free(tag);
}

/* A set of the objects that were written, by linear probing. */
static git_oid *set;
static size_t set_size, set_used;

static int seen_before(const git_oid *oid)
{
	size_t i, at;

	if (set_used * 2 >= set_size) {
		git_oid *old = set;
		size_t old_size = set_size;
		set_size = old_size ? old_size * 2 : 1024;
		set_used = 0;
		set = calloc(set_size, sizeof(*set));
		if (!set)
			exit(1);
		for (i = 0; i < old_size; i++)
			if (!git_oid_is_zero(&old[i]))
				seen_before(&old[i]);
		free(old);
	}
	memcpy(&at, oid->id, sizeof(at));
	for (i = at & (set_size - 1); !git_oid_is_zero(&set[i]); i = (i + 1) & (set_size - 1))
		if (git_oid_equal(&set[i], oid))
			return 1;
	git_oid_cpy(&set[i], oid);
	set_used++;
	return 0;
}

static void walk(git_repository *repo, const git_oid *oid)
{
	git_tree *tree;
	size_t i, n;

	if (seen_before(oid))
		return;
	dump_tree(repo, oid);
	check(git_tree_lookup(&tree, repo, oid), "tree");
	n = git_tree_entrycount(tree);
	for (i = 0; i < n; i++) {
		const git_tree_entry *e = git_tree_entry_byindex(tree, i);
		if (git_tree_entry_type(e) == GIT_OBJECT_TREE)
			walk(repo, git_tree_entry_id(e));
		else if (!seen_before(git_tree_entry_id(e)))
			dump_blob(repo, git_tree_entry_id(e));
	}
	git_tree_free(tree);
}

static void dump_history(git_repository *repo)
{
	git_revwalk *rw;
	git_oid oid;
	git_commit *c;
	int code;

	check(git_revwalk_new(&rw, repo), "walk");
	check(git_revwalk_push_glob(rw, "refs/umbra/*"), "push refs/umbra");
	check(git_revwalk_push_head(rw), "push HEAD");
	while ((code = git_revwalk_next(&oid, rw)) == 0) {
		dump_commit(repo, &oid);
		check(git_commit_lookup(&c, repo, &oid), "commit");
		walk(repo, git_commit_tree_id(c));
		git_commit_free(c);
	}
	if (code != GIT_ITEROVER)
		check(code, "next commit");
	git_revwalk_free(rw);
}

static void dump_tags(git_repository *repo)
{
	git_reference_iterator *it;
	git_reference *ref;
	git_object *obj;

	check(git_reference_iterator_glob_new(&it, repo, "refs/umbra/tasks/*/info"), "tags");
	while (git_reference_next(&ref, it) == 0) {
		check(git_object_lookup(&obj, repo, git_reference_target(ref), GIT_OBJECT_ANY), git_reference_name(ref));
		dump_tag(repo, git_object_id(obj));
		git_object_free(obj);
		git_reference_free(ref);
	}
	git_reference_iterator_free(it);
}

/* What the database holds beyond the history must be readable too. */
static int read_one(const git_oid *oid, void *payload)
{
	git_odb_object *obj;

	check(git_odb_read(&obj, payload, oid), id(oid));
	git_odb_object_free(obj);
	return 0;
}

int main(int argc, char **argv)
{
	git_repository *repo;
	git_odb *odb;

	if (argc != 2) {
		fprintf(stderr, "usage: dump REPOSITORY\n");
		return 2;
	}
	git_libgit2_init();
	check(git_libgit2_opts(GIT_OPT_ENABLE_STRICT_HASH_VERIFICATION, 1), "options");
	check(git_repository_open_bare(&repo, argv[1]), argv[1]);
	dump_refs(repo);
	dump_tags(repo);
	dump_history(repo);
	check(git_repository_odb(&odb, repo), "objects");
	check(git_odb_foreach(odb, read_one, odb), "every object");
	git_odb_free(odb);
	git_repository_free(repo);
	git_libgit2_shutdown();
	return 0;
}
