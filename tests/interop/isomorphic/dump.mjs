// Writes what isomorphic-git sees of a repository, in the form of
// dump_test.go. Usage: node dump.mjs REPOSITORY
import fs from 'node:fs'
import git from 'isomorphic-git'

const gitdir = process.argv[2]
const cache = {}
const seen = new Set()
const lines = []
const hex = (text) => Buffer.from(text, 'utf8').toString('hex')
const hash = async (object) => (await git.hashBlob({ object })).oid

async function walk(oid) {
  if (seen.has(oid)) return
  seen.add(oid)
  const { tree } = await git.readTree({ fs, gitdir, cache, oid })
  for (const e of tree) {
    lines.push(`entry ${oid} ${e.mode.replace(/^0+/, '')} ${hex(e.path)} ${e.oid}`)
    if (e.type === 'tree') {
      await walk(e.oid)
    } else if (!seen.has(e.oid)) {
      seen.add(e.oid)
      const { blob } = await git.readBlob({ fs, gitdir, cache, oid: e.oid })
      lines.push(`blob ${e.oid} ${blob.length} ${await hash(blob)}`)
    }
  }
}

for (const prefix of ['refs/heads', 'refs/umbra']) {
  for (const name of await git.listRefs({ fs, gitdir, filepath: prefix })) {
    if (name.endsWith('^{}')) continue // a tag's peeled value in packed-refs, listed as if it were a ref
    const ref = `${prefix}/${name}`
    const oid = await git.resolveRef({ fs, gitdir, ref })
    lines.push(`ref ${ref} ${oid}`)
    if (ref.endsWith('/info')) {
      const { tag } = await git.readTag({ fs, gitdir, cache, oid })
      lines.push(`tag ${oid} ${tag.object} ${hex(tag.tag)}`)
    }
  }
}
for (const { oid, commit } of await git.log({ fs, gitdir, cache, ref: 'refs/umbra/head' })) {
  const { object } = await git.readObject({ fs, gitdir, cache, oid, format: 'content' })
  const raw = Buffer.from(object)
  const message = raw.subarray(raw.indexOf('\n\n') + 2)
  if (commit.parent.length > 1) throw new Error(`commit ${oid} has several parents`)
  lines.push(`commit ${oid} ${commit.tree} ${commit.parent[0] ?? '-'} ${commit.committer.timestamp} ${await hash(message)}`)
  await walk(commit.tree)
}
process.stdout.write(lines.join('\n') + '\n')
