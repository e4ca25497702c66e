package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"umbra/internal/strictjson"
)

// Error says what is wrong with a setting.
type Error struct {
	Key  string // "limits.write_bytes"; empty for a file as a whole
	File string // where it is, if in a file
	Err  error
}

// Error names the key and the file.
func (e *Error) Error() string {
	s := "config"
	if e.File != "" {
		s += " " + e.File
	}
	if e.Key != "" {
		s += ": " + e.Key
	}
	return s + ": " + e.Err.Error()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// flagKeys are the flags that set a key.
var flagKeys = map[string]string{
	"listen":        "listen",
	"data-dir":      "data_dir",
	"workspace-dir": "workspace_dir",
	"output-dir":    "output.dir",
	"hosted":        "hosted",
	"insecure":      "insecure",
	"cluster":       "cluster.url",
	"blobs":         "cluster.blobs",
	"node":          "cluster.node",
	"advertise":     "cluster.advertise",
}

// aliases are keys named after their flag that are in a table too.
var aliases = map[string]string{"output_dir": "output.dir"}

// Flags adds the flags that Load reads.
func Flags(fs *pflag.FlagSet) {
	d := Default()
	fs.String("config", "", "read settings from `FILE` (YAML or TOML, by its extension)")
	fs.String("listen", d.Listen, "listen on `HOST:PORT`, or unix:PATH")
	fs.String("data-dir", d.DataDir, "keep repositories and records in `DIR`")
	fs.String("workspace-dir", d.WorkspaceDir, "directory `DIR` where the code API saves")
	fs.String("output-dir", d.Output.Dir, "directory `DIR` where scripts save")
	fs.Bool("hosted", d.Hosted, "hosted mode: clients open nothing outside workspaces.roots")
	fs.Bool("insecure", d.Insecure, "allow an address that is not loopback without tokens")
}

// ClusterFlags adds the flags of a node of a cluster, or of verbs about one.
func ClusterFlags(fs *pflag.FlagSet, node bool) {
	fs.String("cluster", "", "PostgreSQL that the nodes of a cluster share: `URL` (postgres://…)")
	fs.String("blobs", "", "object store of the cluster: `URL` (s3://bucket/prefix?region=…)")
	if node {
		fs.String("node", "", "`NAME` of this node in the cluster (default: the host's name)")
		fs.String("advertise", "", "`URL` where other nodes reach this one (default: http://HOST:PORT with the host's name)")
	}
}

// Load reads the settings: flag, environment, file, default. fs has the flags of
// Flags, parsed. Errors are *Error.
func Load(fs *pflag.FlagSet) (Config, error) {
	v := viper.New()
	cfg := Default()
	leaves := leavesOf(reflect.ValueOf(&cfg).Elem(), "")
	for key, leaf := range leaves {
		v.SetDefault(key, leaf.Interface())
		if err := v.BindEnv(key, envName(key)); err != nil {
			return Config{}, &Error{Key: key, Err: err}
		}
	}
	for name, key := range flagKeys {
		if f := fs.Lookup(name); f != nil {
			if err := v.BindPFlag(key, f); err != nil {
				return Config{}, &Error{Key: key, Err: err}
			}
		}
	}
	file := configFile(fs)
	if file != "" {
		if err := readFile(v, file, leaves); err != nil {
			return Config{}, err
		}
	}
	for _, key := range slices.Sorted(keysOf(leaves)) {
		if err := assign(leaves[key], v.Get(key)); err != nil {
			return Config{}, &Error{Key: key, File: origin(v, fs, key, file), Err: err}
		}
	}
	if err := cfg.validate(); err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			e.File = origin(v, fs, e.Key, file)
		}
		return Config{}, err
	}
	return cfg, nil
}

func configFile(fs *pflag.FlagSet) string {
	if f := fs.Lookup("config"); f != nil && f.Changed {
		return f.Value.String()
	}
	return os.Getenv(envName("config"))
}

// Variables lists the names of the variables of the environment that Load and the
// verbs read, sorted.
func Variables() []string {
	cfg := Default()
	out := []string{envName("config"), "UMBRA_CALL", "UMBRA_PAGER", "UMBRA_SERVER", "UMBRA_SUBTASK", "UMBRA_TASK", "UMBRA_TOKEN"}
	for key := range leavesOf(reflect.ValueOf(&cfg).Elem(), "") {
		out = append(out, envName(key))
	}
	slices.Sort(out)
	return out
}

func envName(key string) string {
	return "UMBRA_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// origin is the file's name where the file is what set a key.
func origin(v *viper.Viper, fs *pflag.FlagSet, key, file string) string {
	for name, k := range flagKeys {
		if f := fs.Lookup(name); k == key && f != nil && f.Changed {
			return ""
		}
	}
	if os.Getenv(envName(key)) != "" {
		return ""
	}
	if key, _, _ = strings.Cut(key, "["); file != "" && v.InConfig(key) {
		return file
	}
	return ""
}

// readFile takes the file's settings into v; an unknown key is an error.
func readFile(v *viper.Viper, file string, leaves map[string]reflect.Value) error {
	fail := func(key string, err error) error { return &Error{Key: key, File: file, Err: err} }
	switch ext := strings.ToLower(filepath.Ext(file)); ext {
	case ".yaml", ".yml":
		v.SetConfigType("yaml")
	case ".toml":
		v.SetConfigType("toml")
	default:
		return fail("", fmt.Errorf("extension %q is none of .yaml, .yml, .toml", ext))
	}
	f, err := os.Open(file)
	if err != nil {
		if e, ok := errors.AsType[*os.PathError](err); ok {
			err = e.Err
		}
		return fail("", err)
	}
	defer f.Close()
	own := viper.New()
	own.SetConfigType(strings.ToLower(filepath.Ext(file))[1:])
	if err := own.ReadConfig(f); err != nil {
		if e, ok := errors.AsType[viper.ConfigParseError](err); ok {
			err = e.Unwrap()
		}
		return fail("", fmt.Errorf("the file is not valid: %w", err))
	}
	settings := own.AllSettings()
	for alias, key := range aliases {
		if value, ok := settings[alias]; ok {
			if own.IsSet(key) {
				return fail(alias, fmt.Errorf("%s is set too, and is the same", key))
			}
			delete(settings, alias)
			table, name, _ := strings.Cut(key, ".")
			under, _ := settings[table].(map[string]any)
			if under == nil {
				under = map[string]any{}
			}
			under[name] = value
			settings[table] = under
		}
	}
	if key, ok := unknownKey(settings, "", leaves); ok {
		return fail(key, unknown(key, leaves))
	}
	if err := v.MergeConfigMap(settings); err != nil {
		return fail("", err)
	}
	return nil
}

// unknown is the error for a key that does not exist; it names the nearest one.
func unknown(key string, leaves map[string]reflect.Value) error {
	if near := strictjson.Nearest(key, slices.Sorted(keysOf(leaves))); near != "" {
		return fmt.Errorf("unknown key; did you mean %s?", near)
	}
	return errors.New("unknown key")
}

// unknownKey finds a key that is no leaf and leads to none.
func unknownKey(settings map[string]any, prefix string, leaves map[string]reflect.Value) (string, bool) {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		key := prefix + name
		if _, ok := leaves[key]; ok {
			continue
		}
		leads := false
		for leaf := range leaves {
			leads = leads || strings.HasPrefix(leaf, key+".")
		}
		table, isTable := settings[name].(map[string]any)
		if !leads || !isTable && settings[name] != nil {
			return key, true
		}
		if found, ok := unknownKey(table, key+".", leaves); ok {
			return found, true
		}
	}
	return "", false
}

// leavesOf maps keys to the fields that they set.
func leavesOf(v reflect.Value, prefix string) map[string]reflect.Value {
	leaves := map[string]reflect.Value{}
	for i := range v.NumField() {
		key := prefix + v.Type().Field(i).Tag.Get("key")
		under := key + "."
		if v.Type().Field(i).Anonymous {
			under = prefix
		}
		if f := v.Field(i); f.Kind() == reflect.Struct && f.Type() != reflect.TypeFor[time.Time]() {
			maps.Copy(leaves, leavesOf(f, under))
		} else {
			leaves[key] = f
		}
	}
	return leaves
}

func keysOf(leaves map[string]reflect.Value) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range leaves {
			if !yield(k) {
				return
			}
		}
	}
}

// assign sets a field from what a file (typed) or the environment (text) gave.
func assign(to reflect.Value, raw any) error {
	if raw == nil {
		return nil
	}
	if from := reflect.ValueOf(raw); from.Type() == to.Type() {
		to.Set(from)
		return nil
	}
	text, isText := raw.(string)
	wrong := func(want string) error { return fmt.Errorf("%s is not %s", quoted(raw), want) }
	switch to.Interface().(type) {
	case Size:
		n, isInt := integer(raw)
		if isText {
			size, err := ParseSize(text)
			n, isInt = int64(size), err == nil
		}
		if !isInt || n < 0 {
			return wrong("a size such as 1048576, 100MB or 256MiB")
		}
		to.SetInt(n)
		return nil
	case Floor:
		var size Size
		if isText && strings.EqualFold(strings.TrimSpace(text), "auto") {
			size = Size(FloorAuto)
		} else if err := assign(reflect.ValueOf(&size).Elem(), raw); err != nil {
			return fmt.Errorf("%w, nor auto", err)
		}
		to.SetInt(int64(size))
		return nil
	case time.Duration:
		d, err := time.ParseDuration(text)
		if !isText || err != nil {
			return wrong("a duration such as 30s or 2h")
		}
		to.SetInt(int64(d))
		return nil
	case time.Time:
		at, err := time.Parse(time.RFC3339, text)
		if !isText || err != nil {
			return wrong("a time such as 2027-01-31T12:00:00Z")
		}
		to.Set(reflect.ValueOf(at))
		return nil
	}
	switch to.Kind() {
	case reflect.String:
		if !isText {
			return wrong("text")
		}
		to.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if !isText || err != nil {
			return wrong("true or false")
		}
		to.SetBool(b)
	case reflect.Int:
		n, ok := integer(raw)
		if isText {
			parsed, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			n, ok = parsed, err == nil
		}
		if !ok || to.OverflowInt(n) {
			return wrong("an integer")
		}
		to.SetInt(n)
	case reflect.Slice:
		return assignList(to, raw)
	case reflect.Struct:
		return assignTable(to, raw)
	case reflect.Map:
		return assignTexts(to, raw)
	default:
		return wrong("of a known type")
	}
	return nil
}

// quoted shows a value in a message, the first of it if it is long.
func quoted(raw any) string {
	s := strconv.Quote(fmt.Sprint(raw))
	if len(s) > 80 {
		s = s[:77] + `…"`
	}
	return s
}

func integer(raw any) (int64, bool) {
	v := reflect.ValueOf(raw)
	switch {
	case v.CanInt():
		return v.Int(), true
	case v.CanUint() && v.Uint() < 1<<63:
		return int64(v.Uint()), true
	}
	return 0, false
}

// assignList takes a file's list, or a text with commas where the items are texts.
func assignList(to reflect.Value, raw any) error {
	items, ok := raw.([]any)
	if text, isText := raw.(string); isText && to.Type().Elem().Kind() == reflect.String {
		ok = true
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
	}
	if !ok {
		return fmt.Errorf("%s is not a list", quoted(raw))
	}
	list := reflect.MakeSlice(to.Type(), 0, len(items))
	for i, item := range items {
		value := reflect.New(to.Type().Elem()).Elem()
		if err := assign(value, item); err != nil {
			return fmt.Errorf("item %d: %w", i+1, err)
		}
		list = reflect.Append(list, value)
	}
	if len(items) > 0 {
		to.Set(list)
	} else {
		to.SetZero()
	}
	return nil
}

func assignTable(to reflect.Value, raw any) error {
	table, ok := raw.(map[string]any)
	if !ok {
		return fmt.Errorf("%s is not a table", quoted(raw))
	}
	leaves := leavesOf(to, "")
	if key, ok := unknownKey(table, "", leaves); ok {
		return fmt.Errorf("unknown key %s", key)
	}
	for _, key := range slices.Sorted(keysOf(leaves)) {
		if err := assign(leaves[key], table[key]); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// assignTexts takes a table of texts by names that are not ours.
func assignTexts(to reflect.Value, raw any) error {
	table, ok := raw.(map[string]any)
	if !ok {
		return fmt.Errorf("%s is not a table", quoted(raw))
	}
	texts := map[string]string{}
	for name, value := range table {
		text, isText := value.(string)
		if !isText {
			return fmt.Errorf("%s: not text", name)
		}
		texts[name] = text
	}
	to.Set(reflect.ValueOf(texts))
	return nil
}
