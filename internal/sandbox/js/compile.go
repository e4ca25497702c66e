package js

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/evanw/esbuild/pkg/api"
)

// source gives the bytes of a file of the workspace: fault is empty, ENOENT,
// EISDIR or EACCES.
type source func(name string) (data []byte, fault string)

// compiler makes one module of a program and what it imports.
type compiler struct {
	entry    string
	code     string
	read     source
	builtins map[string][]string // name without "node:" to its exports
	// shallow reads the entry alone: its imports are looked up, not read.
	shallow bool

	maps    *importMap
	mapping error // what is wrong with the import map
	loaded  bool
}

const (
	inWorkspace = "ws"
	inServer    = "node"
)

// bundleName is the file name in the engine's stacks.
const bundleName = "umbra-program.js"

// compiled is a program ready to run.
type compiled struct {
	code    string
	mapping []byte // source map, version 3
	faults  []Diagnostic
}

// tsconfig keeps esbuild from looking for one on disk.
const tsconfig = `{"compilerOptions":{"target":"ESNext","useDefineForClassFields":true}}`

func (k *compiler) compile() compiled {
	res := api.Build(api.BuildOptions{
		EntryPoints:   []string{k.entry},
		Bundle:        true,
		Write:         false,
		Outfile:       "/" + bundleName,
		AbsWorkingDir: "/",
		Format:        api.FormatESModule,
		Platform:      api.PlatformNeutral,
		Target:        api.ES2023,
		Charset:       api.CharsetUTF8,
		TreeShaking:   api.TreeShakingFalse,
		LegalComments: api.LegalCommentsNone,
		Sourcemap:     api.SourceMapExternal,
		LogLevel:      api.LogLevelSilent,
		LogLimit:      100,
		KeepNames:     false,
		TsconfigRaw:   tsconfig,
		Define:        k.meta(k.entry),
		Plugins:       []api.Plugin{{Name: "workspace", Setup: k.setup}},
	})
	var c compiled
	for _, m := range res.Errors {
		c.faults = append(c.faults, diagnostic(m, SeverityError))
	}
	for _, m := range res.Warnings {
		c.faults = append(c.faults, diagnostic(m, SeverityWarning))
	}
	for _, f := range res.OutputFiles {
		if strings.HasSuffix(f.Path, ".map") {
			c.mapping = f.Contents
		} else {
			c.code = string(f.Contents)
		}
	}
	return c
}

// meta is what a module reads of itself.
func (k *compiler) meta(file string) map[string]string {
	text := func(s string) string {
		raw, err := json.Marshal(s)
		if err != nil {
			return `""`
		}
		return string(raw)
	}
	return map[string]string{
		"import.meta.url":      text("file:///workspace/" + file),
		"import.meta.filename": text("/workspace/" + file),
		"import.meta.dirname":  text(path.Dir("/workspace/" + file)),
		"import.meta.main":     fmt.Sprint(file == k.entry),
	}
}

func (k *compiler) setup(b api.PluginBuild) {
	b.OnResolve(api.OnResolveOptions{Filter: ".*"}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
		if a.Kind == api.ResolveEntryPoint {
			return api.OnResolveResult{Path: k.entry, Namespace: inWorkspace}, nil
		}
		return k.resolve(a.Importer, a.Path)
	})
	b.OnLoad(api.OnLoadOptions{Filter: ".*", Namespace: inWorkspace}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
		return k.load(a.Path)
	})
	b.OnLoad(api.OnLoadOptions{Filter: ".*", Namespace: inServer}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
		text := k.builtin(a.Path)
		return api.OnLoadResult{Contents: &text, Loader: api.LoaderJS}, nil
	})
}

// builtin is the text of a module that replaces one of the server's own.
func (k *compiler) builtin(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "const m = process.getBuiltinModule(%q);\nexport default m;\n", name)
	for i, export := range k.builtins[name] {
		fmt.Fprintf(&b, "const x%d = m[%q];\nexport { x%d as %s };\n", i, export, i, export)
	}
	return b.String()
}

func fail(format string, args ...any) (api.OnResolveResult, error) {
	return api.OnResolveResult{Errors: []api.Message{{Text: fmt.Sprintf(format, args...)}}}, nil
}

// resolve finds the module that an import means.
func (k *compiler) resolve(importer, specifier string) (api.OnResolveResult, error) {
	maps, err := k.importMap()
	if err != nil {
		return fail("import_map.json: %v", err)
	}
	target, mapped, err := maps.resolve(importer, specifier)
	if err != nil {
		return fail("%v", err)
	}
	if !mapped {
		target = specifier
	}
	name, isNode := strings.CutPrefix(target, "node:")
	if _, known := k.builtins[name]; known && (isNode || !mapped) {
		return api.OnResolveResult{Path: name, Namespace: inServer}, nil
	}
	if isNode {
		return fail("Module %q is not available here", specifier)
	}
	file, ok := strings.CutPrefix(target, "file:///workspace/")
	switch {
	case ok, mapped && !strings.Contains(target, ":"):
		if !ok {
			file = target
		}
	case strings.HasPrefix(target, "./"), strings.HasPrefix(target, "../"), target == ".", target == "..":
		file = path.Join(path.Dir(importer), target)
	case strings.Contains(target, ":"):
		return fail("Module %q is not available: programs have no network", specifier)
	case strings.HasPrefix(target, "/"):
		return fail("Module %q lies outside of the workspace", specifier)
	default:
		return fail("Module %q was not found: it is neither a path that begins with \"./\" nor in import_map.json", specifier)
	}
	file = path.Clean(file)
	if file == ".." || strings.HasPrefix(file, "../") || strings.HasPrefix(file, "/") {
		return fail("Module %q lies outside of the workspace", specifier)
	}
	found, fault := k.find(file)
	switch fault {
	case "":
		return api.OnResolveResult{Path: found, Namespace: inWorkspace, External: k.shallow}, nil
	case "EACCES":
		return fail("Module %q may not be read: it lies outside of the workspace", specifier)
	}
	return fail("Module %q was not found in the workspace", specifier)
}

// find tries the names that a module may have on disk.
func (k *compiler) find(file string) (found, fault string) {
	names := []string{file}
	if base, ok := strings.CutSuffix(file, ".js"); ok {
		names = append(names, base+".ts")
	}
	if path.Ext(file) == "" || !slices.Contains(known, path.Ext(file)) {
		for _, ext := range known {
			names = append(names, file+ext)
		}
		names = append(names, file+"/index.ts", file+"/index.js")
	}
	for _, name := range names {
		if name == k.entry {
			return name, ""
		}
		switch _, fault = k.read(name); fault {
		case "", "EACCES":
			return name, fault
		}
	}
	return "", "ENOENT"
}

var known = []string{".ts", ".tsx", ".mts", ".js", ".mjs", ".jsx", ".json"}

func (k *compiler) load(name string) (api.OnLoadResult, error) {
	text := k.code
	if name != k.entry {
		data, fault := k.read(name)
		if fault != "" {
			return api.OnLoadResult{Errors: []api.Message{{Text: fmt.Sprintf("%s cannot be read", name)}}}, nil
		}
		text = string(data)
	}
	loader := api.LoaderTS
	switch path.Ext(name) {
	case ".tsx":
		loader = api.LoaderTSX
	case ".js", ".mjs":
		loader = api.LoaderJS
	case ".jsx":
		loader = api.LoaderJSX
	case ".json":
		loader = api.LoaderJSON
	}
	if name != k.entry && loader != api.LoaderJSON && strings.Contains(text, "import.meta") {
		// What it reads of itself is its own, not the entry's.
		res := api.Transform(text, api.TransformOptions{Loader: loader, Target: api.ES2023, Define: k.meta(name), Sourcefile: path.Base(name),
			Sourcemap: api.SourceMapInline, Charset: api.CharsetUTF8, TsconfigRaw: tsconfig, LogLevel: api.LogLevelSilent})
		if len(res.Errors) == 0 {
			text, loader = string(res.Code), api.LoaderJS
		}
	}
	return api.OnLoadResult{Contents: &text, Loader: loader}, nil
}

// diagnostic is esbuild's message in our form. Its columns are bytes.
func diagnostic(m api.Message, s Severity) Diagnostic {
	d := Diagnostic{Code: m.ID, Message: m.Text, Severity: s, Range: Range{Start: Position{Line: 1}, End: Position{Line: 1}}}
	if d.Code == "" || m.PluginName != "" {
		d.Code = "syntax-error"
		if m.PluginName != "" {
			d.Code = "unresolved-import"
		}
	}
	if l := m.Location; l != nil {
		d.Filename = strings.TrimPrefix(l.File, inWorkspace+":")
		d.Range.Start = Position{Line: l.Line, Col: units(l.LineText, l.Column)}
		d.Range.End = Position{Line: l.Line, Col: units(l.LineText, l.Column+l.Length)}
	}
	var notes []string
	for _, n := range m.Notes {
		notes = append(notes, n.Text)
	}
	d.Hint = strings.Join(notes, " ")
	return d
}

// units turns a place in bytes into UTF-16 units.
func units(line string, bytes int) int {
	return len(utf16.Encode([]rune(line[:max(0, min(bytes, len(line)))])))
}
