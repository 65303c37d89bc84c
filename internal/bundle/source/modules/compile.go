package modules

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/bundle/pack"
	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/safefile"
)

// A goMod holds the directives that are copied from a module's go.mod: they would apply
// if its programs were built in its repository.
type goMod struct {
	Go      string
	GoDebug []struct{ Key, Value string }
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
	Exclude []struct{ Path, Version string }
	// Require is copied only from a ModFile. The go tool reads the requirements of a
	// go.mod when it resolves the module.
	Require []struct {
		Path, Version string
	}
}

// downloaded is the output of the go tool for one module.
type downloaded struct{ GoMod, Dir, Error string }

// downloadModule fetches a module ("path@version"), verified.
func (j *job) downloadModule(ctx context.Context, mod string) (downloaded, error) {
	var out bytes.Buffer
	var d downloaded
	err := runCommand(ctx, command{
		argv: []string{"go", "mod", "download", "-json", mod}, dir: j.scratch, env: j.tool.env, as: j.tool.as, stdout: &out,
		line: func(l string) { j.reportProgress(source.Progress{Phase: source.Fetching, Message: l}) },
	})
	if e := json.Unmarshal(out.Bytes(), &d); e == nil && d.Error != "" {
		return d, fetchError(mod, &runError{argv: []string{"go"}, tail: []string{d.Error}, err: errors.New("the module is not available")})
	}
	return d, fetchError(mod, err)
}

// goMod writes the scratch module's go.mod.
func (j *job) goMod(ctx context.Context, m module, dir string) error {
	text := "module slipway.build/" + j.unit.Name + "\n"
	if m.Primary != "" {
		d, err := j.downloadModule(ctx, m.Primary)
		if err != nil {
			return err
		}
		if err := j.sameComponents(m, d.Dir); err != nil {
			return err
		}
		var out bytes.Buffer
		file := d.GoMod
		if m.ModFile != "" {
			file = filepath.Join(d.Dir, m.ModFile)
		}
		if err := runCommand(ctx,
			command{argv: []string{"go", "mod", "edit", "-json", file}, dir: j.scratch, env: j.tool.env, as: j.tool.as, stdout: &out}); err != nil {
			return fmt.Errorf("reading the go.mod of %s: %w", m.Primary, err)
		}
		var theirs goMod
		if err := json.Unmarshal(out.Bytes(), &theirs); err != nil {
			return fmt.Errorf("reading the go.mod of %s: %w", m.Primary, err)
		}
		text += goModDirectives(m, theirs)
	} else {
		text += "\ngo 1.26\n"
	}
	return safefile.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o644)
}

func goModDirectives(m module, theirs goMod) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\ngo %s\n\n", theirs.Go)
	for _, d := range theirs.GoDebug {
		fmt.Fprintf(&b, "godebug %s=%s\n", d.Key, d.Value)
	}
	for _, r := range append([]string{m.Primary}, m.Require...) {
		fmt.Fprintf(&b, "require %s\n", strings.Replace(r, "@", " ", 1))
	}
	for _, r := range theirs.Require {
		if m.ModFile != "" {
			fmt.Fprintf(&b, "require %s %s\n", r.Path, r.Version)
		}
	}
	for _, e := range theirs.Exclude {
		fmt.Fprintf(&b, "exclude %s %s\n", e.Path, e.Version)
	}
	for _, r := range theirs.Replace {
		local := strings.HasPrefix(r.New.Path, ".")
		switch {
		case m.Replace[r.Old.Path] != "":
		case local && m.Staging != "":
			fmt.Fprintf(&b, "replace %s => %s %s\n", r.Old.Path, r.Old.Path, cmp.Or(m.Instead[r.Old.Path], m.Staging))
		case !local:
			fmt.Fprintf(&b, "replace %s => %s\n", strings.TrimSpace(r.Old.Path+" "+r.Old.Version), strings.TrimSpace(r.New.Path+" "+r.New.Version))
		}
	}
	for _, p := range slices.Sorted(maps.Keys(m.Replace)) {
		fmt.Fprintf(&b, "replace %s => ./%s\n", p, m.Replace[p])
	}
	return b.String()
}

// sameComponents compares the catalogue with the constants in kubeadm's
// source: a patch that the catalogue does not list may want other images.
func (j *job) sameComponents(m module, dir string) error {
	if !strings.HasPrefix(m.Primary, "k8s.io/kubernetes@") {
		return nil
	}
	want, err := kubeadmConstants(filepath.Join(dir, "cmd/kubeadm/app/constants/constants.go"))
	if err != nil {
		return fmt.Errorf("reading kubeadm's list of images: %w", err)
	}
	var differ []string
	for _, c := range []struct{ field, constant, have string }{
		{"etcdImage", "DefaultEtcdVersion", j.release.EtcdImage},
		{"coredns", "CoreDNSVersion", j.release.CoreDNS},
		{"pause", "PauseVersion", j.release.Pause},
	} {
		if w := strings.TrimPrefix(want[c.constant], "v"); w != c.have {
			differ = append(differ, c.field+": "+strconv.Quote(w))
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return newProblem(IDOtherRelease,
		"set these under minors, components in $SLIPWAY_HOME/releases.yaml: "+strings.Join(differ, ", "),
		"kubeadm %s expects images that differ from the release catalogue: %s", j.release.Kubernetes, strings.Join(differ, ", "))
}

// kubeadmConstants are the string constants of a Go file.
func kubeadmConstants(file string) (map[string]string, error) {
	data, err := safefile.ReadFile(file, bounded.Argument)
	if err != nil {
		return nil, err
	}
	f, err := parser.ParseFile(token.NewFileSet(), file, data, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Names) == 1 && len(v.Values) == 1 {
			if lit, ok := v.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if s, err := strconv.Unquote(lit.Value); err == nil {
					out[v.Names[0].Name] = s
				}
			}
		}
		return true
	})
	return out, nil
}

// compileModule builds the programs of a module and returns them as members.
func (j *job) compileModule(ctx context.Context, index int, m module) ([]pack.Member, []source.Origin, error) {
	dir := filepath.Join(j.scratch, strconv.Itoa(index))
	if err := writeFiles(dir, m.Files); err != nil {
		return nil, nil, err
	}
	if err := errors.Join(j.goMod(ctx, m, dir), j.tool.as.GiveTree(dir)); err != nil { // the go tool writes there
		return nil, nil, err
	}
	env, err := j.buildEnv(ctx, m)
	if err != nil {
		return nil, nil, err
	}
	out := filepath.Join(dir, "out") + "/"
	flags := []string{"-mod=mod", "-trimpath", "-buildvcs=false", "-tags", m.Tags, "-ldflags", m.LDFlags, "-o", out}
	// Tests come last: they find what the programs have compiled.
	for _, b := range []struct {
		pkgs       []string
		list, argv []string
	}{
		{slices.Sorted(maps.Keys(m.Programs)), nil, []string{"go", "build", "-v"}},
		{slices.Sorted(maps.Keys(m.Tests)), []string{"-test"}, []string{"go", "test", "-c", "-vet=off"}},
	} {
		if len(b.pkgs) == 0 {
			continue
		}
		total, err := j.fetchDependencies(ctx, m, dir, env, append(b.list, b.pkgs...))
		if err != nil {
			return nil, nil, err
		}
		if err := j.goBuild(ctx, command{argv: slices.Concat(b.argv, flags, b.pkgs), dir: dir, env: env, as: j.tool.as}, total); err != nil {
			return nil, nil, err
		}
	}
	members, origins, err := j.collectPrograms(m, out)
	if err != nil || len(m.Data) == 0 {
		return members, origins, err
	}
	d, err := j.downloadModule(ctx, m.Primary)
	for file, member := range m.Data {
		members = append(members, pack.Member{Name: member, Path: filepath.Join(d.Dir, file), Mode: 0o644})
	}
	return members, origins, err
}

// goBuild runs the go tool, when it is this job's turn, and counts the packages
// that it compiles.
func (j *job) goBuild(ctx context.Context, c command, total int64) error {
	if err := j.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer j.turn.Release(1)
	var built int64
	j.reportProgress(source.Progress{Phase: source.Compiling, Total: total, Unit: "packages"})
	c.line = func(l string) {
		if strings.ContainsAny(l, " #") {
			return // a warning of the C compiler's, not a package
		}
		built++
		j.reportProgress(source.Progress{Phase: source.Compiling, Done: min(built, total), Total: total, Unit: "packages", Message: l})
	}
	err := runCommand(ctx, c)
	var failed *runError
	if errors.As(err, &failed) {
		return newProblem(IDCompile, "free memory or disk space if either ran out; compiled parts are kept for the next build",
			"compiling %s: %v", j.label(), failed)
	}
	return err
}

// fetchDependencies resolves and fetches all dependencies of the packages, and returns
// their number.
func (j *job) fetchDependencies(ctx context.Context, m module, dir string, env, pkgs []string) (int64, error) {
	var out bytes.Buffer
	argv := slices.Concat([]string{"go", "list", "-mod=mod", "-deps", "-tags", m.Tags, "-f", "{{.ImportPath}}"}, pkgs)
	err := runCommand(ctx, command{argv: argv, dir: dir, env: env, as: j.tool.as, stdout: &out, line: func(l string) {
		j.reportProgress(source.Progress{Phase: source.Fetching, Message: strings.TrimPrefix(l, "go: ")})
	}})
	return int64(bytes.Count(out.Bytes(), []byte("\n"))), fetchError(j.label(), err)
}

// buildEnv is the environment of a build; for cgo it has the C compiler and
// the headers and libraries of the module's Debian packages.
func (j *job) buildEnv(ctx context.Context, m module) ([]string, error) {
	env := append(slices.Clone(j.tool.env), platformEnv(j.arch)...)
	if !m.CGO {
		return env, nil
	}
	cc, err := findCompilers(j.arch, j.unit.Name)
	if err != nil {
		return nil, err
	}
	env = append(env, "CGO_ENABLED=1", "CC="+cc)
	if len(m.Sysroot) == 0 {
		return env, nil
	}
	tree, err := j.debs.unpackPackages(ctx, m.Sysroot, filepath.Join(j.scratch, "sysroot"), j.reportProgress)
	if err != nil {
		return nil, err
	}
	tree.markUsed(m.Sysroot...)
	j.origins = append(j.origins, tree.usedOrigins(j.unit.Name)...)
	return append(env,
		"PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1", "PKG_CONFIG_ALLOW_SYSTEM_LIBS=1",
		"PKG_CONFIG_SYSROOT_DIR="+tree.dir,
		"PKG_CONFIG_LIBDIR="+filepath.Join(tree.dir, source.LibDir(j.arch), "pkgconfig")), nil
}

// collectPrograms returns the built programs as members, and their build information as
// origins: each module with its verified checksum.
func (j *job) collectPrograms(m module, out string) ([]pack.Member, []source.Origin, error) {
	var members []pack.Member
	origins := []source.Origin{{For: j.unit.Name, Kind: "tool", Name: "go", Version: j.tool.version}}
	files := map[string]string{}
	for pkg, member := range m.Programs {
		name := binaryName(pkg)
		if pkg == "." {
			name = path.Base(j.unit.Name)
		}
		files[name] = member
	}
	for pkg, member := range m.Tests {
		files[binaryName(pkg)+".test"] = member
	}
	for name, member := range files {
		file := filepath.Join(out, name)
		info, err := buildInfo(file)
		if err != nil {
			return nil, nil, fmt.Errorf("reading the build information of %s: %w", name, err)
		}
		for _, d := range append(slices.Clone(info.Deps), &info.Main) {
			if d.Replace != nil {
				d = d.Replace
			}
			if d.Sum != "" {
				origins = append(origins, source.Origin{For: j.unit.Name, Kind: "module", Name: d.Path, Version: d.Version, Sum: d.Sum})
			}
		}
		members = append(members, pack.Member{Name: member, Path: file, Setuid: slices.Contains(j.unit.Setuid, member)})
	}
	return members, origins, nil
}

// buildInfo reads what the go tool has written into a program.
func buildInfo(file string) (*buildinfo.BuildInfo, error) {
	f, err := safefile.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return buildinfo.Read(f)
}

func writeFiles(dir string, files map[string]string) error {
	if err := safefile.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := safefile.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if err := safefile.WriteFile(p, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
