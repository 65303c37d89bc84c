package modules

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/fileowner"
)

// Identifiers of this package's diagnostics.
const (
	IDNoGo         = "go-tool-missing"
	IDUnchecked    = "checksums-off"
	IDChecksum     = "checksum-mismatch"
	IDFetch        = "module-fetch-failed"
	IDCompile      = "compile-failed"
	IDNoCompiler   = "compiler-missing"
	IDNoApt        = "apt-missing"
	IDPackages     = "package-fetch-failed"
	IDOtherRelease = "release-components-differ"
)

func newProblem(id, hint, format string, args ...any) diag.List {
	return diag.List{{ID: id, Severity: diag.Error, Message: fmt.Sprintf(format, args...), Hint: hint}}
}

// sourceSilent marks a diagnostic as the error of a source that does not respond.
func sourceSilent(d diag.List) error { return &silentError{d} }

type silentError struct{ diag.List }

func (e *silentError) Error() string   { return e.List.Error() }
func (e *silentError) Unwrap() []error { return []error{source.ErrSilent, e.List} }

// A goTool runs the go tool in a controlled environment: with checksum verification,
// without private modules, and without flags that change the result.
type goTool struct {
	env     []string
	version string           // "go1.26.8"
	as      *fileowner.Owner // the user that runs it; nil is the current user
}

type goEnv struct{ GOVERSION, GOPROXY, GOSUMDB, GOFLAGS, GOMODCACHE, GOCACHE, GOTOOLCHAIN, GOROOT string }

// newGoTool reads the settings of the go tool, and refuses settings that turn checksum
// verification off. Only tests pass unchecked.
func newGoTool(ctx context.Context, environ []string, as *fileowner.Owner, unchecked bool) (*goTool, error) {
	if environ == nil {
		environ = os.Environ()
	}
	environ = as.Environ(environ)
	if _, err := exec.LookPath("go"); err != nil {
		return nil, newProblem(IDNoGo, "install Go 1.26 or newer, or build with --source upstream",
			"compiling from modules needs the go tool: %v", err)
	}
	var out bytes.Buffer
	err := runCommand(ctx,
		command{argv: []string{
			"go", "env", "-json", "GOVERSION", "GOPROXY", "GOSUMDB", "GOFLAGS", "GOMODCACHE", "GOCACHE",
			"GOTOOLCHAIN", "GOROOT",
		}, dir: os.TempDir(), env: append(slices.Clone(environ), "GOWORK=off"), as: as, stdout: &out})
	if err != nil {
		return nil, newProblem(IDNoGo, "run `go env`, and fix the problem that it reports", "reading the settings of the go tool: %v", err)
	}
	var e goEnv
	if err := json.Unmarshal(out.Bytes(), &e); err != nil {
		return nil, fmt.Errorf("parsing the go tool's settings: %w", err)
	}
	if !unchecked {
		if err := checkGoEnv(e, environ); err != nil {
			return nil, err
		}
	}
	return &goTool{version: e.GOVERSION, as: as, env: cleanEnv(environ, e)}, nil
}

// checkGoEnv refuses settings that disable the verification of modules.
func checkGoEnv(e goEnv, environ []string) error {
	bad := ""
	switch {
	case e.GOSUMDB == "off":
		bad = "GOSUMDB=off"
	case strings.Contains(e.GOFLAGS, "-insecure"):
		bad = "GOFLAGS=" + e.GOFLAGS
	}
	for _, kv := range environ {
		if name, value, _ := strings.Cut(kv, "="); (name == "GONOSUMCHECK" || name == "GOINSECURE") && value != "" {
			bad = kv
		}
	}
	if bad == "" {
		return nil
	}
	return newProblem(IDUnchecked, "unset this variable: modules in a bundle must be verified with the Go checksum database",
		"%s disables the verification of modules", bad)
}

// cleanEnv keeps only the user's Go settings for the sources and the storage of modules.
// GOENV=off removes GONOSUMDB, GOPRIVATE and similar settings.
func cleanEnv(environ []string, e goEnv) []string {
	var env []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		own := strings.HasPrefix(name, "GO") || strings.HasPrefix(name, "CGO_") || strings.HasPrefix(name, "PKG_CONFIG")
		if !own && !slices.Contains([]string{"CC", "CXX", "AR", "LD", "LANG", "LC_ALL"}, name) {
			env = append(env, kv)
		}
	}
	return append(env,
		"GOENV=off", "GOWORK=off", "GOFLAGS=", "GO111MODULE=on", "LC_ALL=C",
		"GOPROXY="+proxiesOnly(e.GOPROXY), "GOSUMDB="+e.GOSUMDB,
		"GOMODCACHE="+e.GOMODCACHE, "GOCACHE="+e.GOCACHE,
		"GOTOOLCHAIN="+e.GOTOOLCHAIN, "GOROOT="+e.GOROOT,
		// With less frequent garbage collection, compilers finish in four fifths of the
		// time. They then use up to a gigabyte each.
		"GOGC=400", "GOMEMLIMIT=4GiB",
	)
}

// proxiesOnly removes "direct" if there is a proxy, so that modules come from the proxy
// and from no repository.
func proxiesOnly(list string) string {
	kept := strings.FieldsFunc(strings.ReplaceAll(list, "direct", ""), func(r rune) bool { return r == ',' || r == '|' })
	if len(kept) == 0 {
		return list
	}
	return strings.Join(kept, ",")
}

// platformEnv returns the variables of a build for an architecture.
func platformEnv(arch string) []string {
	return []string{"GOOS=linux", "GOARCH=" + arch, "GOAMD64=v1", "GOARM64=v8.0", "CGO_ENABLED=0"}
}

// A command is a program to run: argv, never a shell.
type command struct {
	// path is the program, if it is not found by argv[0].
	path string
	argv []string
	dir  string
	env  []string
	// as is the user that runs it; nil is the current user.
	as     *fileowner.Owner
	stdout io.Writer
	// line takes each line of stderr as it comes.
	line func(string)
}

// killDelay is how long a cancelled program's children may hold its pipes.
const killDelay = 5 * time.Second

// tailLines is the number of stderr lines of a failed program that are reported.
const tailLines = 20

// A runError is a program that failed, with the end of its stderr.
type runError struct {
	argv []string
	tail []string
	err  error
}

func (e *runError) Error() string {
	return fmt.Sprintf("%s: %v\n%s", filepath.Base(e.argv[0]), e.err, strings.Join(e.tail, "\n"))
}

func (e *runError) Unwrap() error { return e.err }

// runCommand runs a command to its end. Cancelling ctx kills the command and its
// children.
func runCommand(ctx context.Context, c command) error {
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	if c.path != "" {
		cmd.Path, cmd.Err = c.path, nil
	}
	cmd.Dir, cmd.Env, cmd.Stdout = c.dir, c.env, c.stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.as.Credential()}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killDelay
	stderr := &lineWriter{each: c.line}
	cmd.Stderr = stderr
	err := cmd.Run()
	stderr.flushLine()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return &runError{argv: c.argv, tail: stderr.tail, err: err}
	}
	return nil
}

// lineWriter splits what is written into lines and keeps the last of them.
type lineWriter struct {
	each func(string)
	part []byte
	tail []string
}

func (l *lineWriter) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	for {
		n, line, err := bufio.ScanLines(l.part, false)
		if n == 0 || err != nil {
			return len(p), nil
		}
		l.addLine(string(line))
		l.part = l.part[n:]
	}
}

func (l *lineWriter) flushLine() {
	if len(l.part) > 0 {
		l.addLine(string(l.part))
		l.part = nil
	}
}

func (l *lineWriter) addLine(line string) {
	if l.tail = append(l.tail, line); len(l.tail) > tailLines {
		l.tail = l.tail[1:]
	}
	if l.each != nil {
		l.each(line)
	}
}

// fetchError explains why modules could not be had.
func fetchError(what string, err error) error {
	var r *runError
	if !errors.As(err, &r) {
		return err
	}
	if text := strings.Join(r.tail, "\n"); strings.Contains(text, "SECURITY ERROR") || strings.Contains(text, "checksum mismatch") {
		return newProblem(IDChecksum, "do not use this module proxy, or, if the local copy is damaged, run `go clean -modcache`",
			"%s: content from the module proxy does not match the checksum database: %v", what, err)
	}
	return sourceSilent(newProblem(IDFetch,
		"check the network and GOPROXY; some versions are not available as a module: docs/guide/bundle.md",
		"fetching the modules of %s: %v", what, err))
}

// findCompilers finds the C compiler for an architecture, and pkg-config.
func findCompilers(arch, what string) (cc string, err error) {
	triple := path.Base(source.LibDir(arch))
	cc, packages := "gcc", []string{"gcc", "libc6-dev"}
	if arch != runtime.GOARCH {
		cc, packages = triple+"-gcc", []string{"gcc-" + strings.ReplaceAll(triple, "_", "-")}
	}
	if runtime.GOOS != "linux" {
		return "", newProblem(IDNoCompiler, "build on Linux, or with --source upstream", "%s needs a C compiler for Linux", what)
	}
	var missing []string
	if _, err := exec.LookPath(cc); err != nil {
		missing = append(missing, packages...)
	}
	if _, err := exec.LookPath("pkg-config"); err != nil {
		missing = append(missing, "pkg-config")
	}
	if len(missing) > 0 {
		return "", newProblem(IDNoCompiler, "apt-get install "+strings.Join(missing, " "),
			"%s for linux/%s is compiled with cgo, and its build tools are missing", what, arch)
	}
	return cc, nil
}
