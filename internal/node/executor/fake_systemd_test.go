//go:build linux

package executor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/systemctl"
)

func fakeSystemctl(w *world, args []string) (string, error) {
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--" || a == "--no-ask-password" })
	if len(args) == 1 && args[0] == "daemon-reload" {
		w.Reloads++
		for _, u := range w.Units {
			u.NeedReload = false
		}
		return "", nil
	}
	if args[0] == "list-units" {
		return "", nil
	}
	if len(args) == 1 && args[0] == "reboot" {
		return w.reboot()
	}
	if len(args) != 2 && !(len(args) == 3 && args[0] == "show") {
		return "", fmt.Errorf("unexpected: systemctl %q", args)
	}
	name := args[len(args)-1]
	if strings.HasSuffix(name, ".scope") {
		return w.scope(args[0], name)
	}
	if strings.HasPrefix(name, systemctl.UnitPrefix) {
		return w.transient(args[0], name)
	}
	u := w.unit(name)
	if args[0] == "show" {
		return showUnit(w, name, u), nil
	}
	if !w.has(name) && args[0] != "mask" && args[0] != "unmask" && args[0] != "stop" {
		return "", fmt.Errorf("unit %s not found", name)
	}
	wants := filepath.Join(w.Root, "etc/systemd/system/multi-user.target.wants")
	switch args[0] {
	case "start", "restart":
		if w.OnRun == "cut before" {
			return "", errors.New("cut before it was started")
		}
		u.Active, u.Starts, u.Since = !u.NoStart, u.Starts+1, 0
		if name == "etcd.service" {
			if err := w.startEtcd(); err != nil {
				return "", err
			}
		}
		if answers, ok := strings.CutPrefix(w.OnRun, "write "); ok { // what serves from then on
			if err := os.WriteFile(filepath.Join(w.Root, "etc/answers"), []byte(answers), 0o600); err != nil {
				return "", err
			}
		}
		if w.OnRun == "cut after" {
			return "", errors.New("cut after it was started")
		}
	case "stop":
		if w.OnRun == "cut before the stop" {
			return "", errors.New("cut before it was stopped")
		}
		u.Active, u.Failed = false, u.FailsOnStop
	case "enable":
		u.Enabled = true
		if err := os.MkdirAll(wants, 0o755); err != nil {
			return "", err
		}
		return "", os.Symlink("/etc/systemd/system/"+name, filepath.Join(wants, name))
	case "disable":
		u.Enabled = false
		return "", os.Remove(filepath.Join(wants, name))
	case "mask":
		u.Masked = true
	case "unmask":
		u.Masked = false
	case "reset-failed":
		u.Failed = false
	default:
		return "", fmt.Errorf("unexpected: systemctl %q", args)
	}
	return "", nil
}

// reboot plays a reboot: the next boot has another ID. With "refuse", systemd refuses it.
// With "shutdown", the command is killed by the shutdown that it has started.
func (w *world) reboot() (string, error) {
	if w.OnRun == "refuse" {
		return "", errors.New("Access denied")
	}
	w.Boots++
	err := os.WriteFile(filepath.Join(w.Root, "proc/sys/kernel/random/boot_id"), fmt.Appendf(nil, "boot-%d\n", w.Boots+1), 0o600)
	if err == nil && w.OnRun == "shutdown" {
		err = errors.New("killed by the shutdown")
	}
	return "", err
}

// transient plays systemctl for a unit that systemd-run made.
func (w *world) transient(verb, name string) (string, error) {
	u := w.Transient[name]
	failed := u != nil && u.Code != 0
	switch {
	case verb == "show" && u == nil:
		return "LoadState=not-found\nActiveState=inactive\nSubState=dead\n", nil
	case verb == "show" && u.Running:
		return "LoadState=loaded\nActiveState=active\nSubState=running\nMainPID=0\n", nil
	case verb == "show" && failed:
		return fmt.Sprintf("LoadState=loaded\nActiveState=failed\nSubState=failed\nResult=exit-code\nExecMainStatus=%d\n", u.Code), nil
	case verb == "show" && u.Killed:
		return "LoadState=loaded\nActiveState=active\nSubState=exited\nResult=success\nExecMainCode=2\nExecMainStatus=15\n", nil
	case verb == "show":
		return "LoadState=loaded\nActiveState=active\nSubState=exited\nResult=success\nExecMainCode=1\nExecMainStatus=0\n", nil
	case u != nil && (!u.Running || u.MayStop) && (verb == "stop" && !failed || verb == "reset-failed" && failed):
		delete(w.Transient, name)
		return "", nil
	}
	return "", fmt.Errorf("unexpected: systemctl %s %s", verb, name)
}

// scopes returns the directory with a file for each scope. It is not in the world,
// because other fakes write the world meanwhile.
func (h *testHost) scopes() string { return filepath.Join(h.fakes, "scopes") }

// scope plays systemctl for a scope that is not removed when its process ends, as if
// systemd had not noticed the end.
func (w *world) scope(verb, name string) (string, error) {
	file := filepath.Join(filepath.Dir(worldFile()), "scopes", name)
	switch there := host.Exists(file); {
	case verb == "show" && there:
		return "LoadState=loaded\nActiveState=active\nSubState=running\n", nil
	case verb == "show":
		return "LoadState=not-found\nActiveState=inactive\nSubState=dead\n", nil
	case verb == "stop" && there && w.OnRun == "scope goes":
		return "", errors.Join(os.Remove(file), fmt.Errorf("unit %s not loaded", name))
	case verb == "stop" && there:
		return "", os.Remove(file)
	}
	return "", fmt.Errorf("unexpected: systemctl %s %s", verb, name)
}

// fakeScope replaces its process with the program, as the real one does.
func fakeScope(args, program []string) (string, error) {
	if !strings.HasPrefix(args[1], "--unit="+systemctl.UnitPrefix+"scratch-") {
		return "", fmt.Errorf("unexpected: a scope with %s", args[1])
	}
	file := filepath.Join(filepath.Dir(worldFile()), "scopes", strings.TrimPrefix(args[1], "--unit="))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	path, err := exec.LookPath(program[0])
	if err := errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	return "", unix.Exec(path, append([]string{path}, program[1:]...), os.Environ())
}

// fakeSystemdRun runs the program at once and records its result.
func fakeSystemdRun(w *world, args []string) (string, error) {
	if i := slices.Index(args, "--"); args[0] == "--scope" && i > 0 {
		return fakeScope(args[:i], args[i+1:])
	}
	var unit string
	files := map[string]string{}
	cmd := exec.Command("false")
	for i, a := range args {
		if a == "--" {
			env := cmd.Env
			cmd = exec.Command(args[i+1])
			cmd.Env = env
			for _, arg := range args[i+2:] {
				cmd.Args = append(cmd.Args, strings.ReplaceAll(arg, "$$", "$"))
			}
			break
		}
		key, value, _ := strings.Cut(strings.TrimPrefix(a, "--property="), "=")
		switch key {
		case "--unit":
			unit = value
		case "--setenv":
			cmd.Env = append(cmd.Env, value)
		case "BindReadOnlyPaths":
			// Nothing is mounted here: the program finds the file by the variable.
			from, to, _ := strings.Cut(value, ":")
			if to != "/etc/hosts" {
				return "", fmt.Errorf("unexpected: a unit with %s of its own", to)
			}
			cmd.Env = append(cmd.Env, "HOSTS="+from)
		case "StandardOutput", "StandardError", "StandardInput":
			files[key] = strings.TrimPrefix(value, "file:")
		case "--no-block", "--quiet", "--no-ask-password", "--description", "RemainAfterExit", "RuntimeMaxSec", "UMask", "WorkingDirectory":
		default:
			return "", fmt.Errorf("unexpected: systemd-run %s", a)
		}
	}
	if w.Transient[unit] != nil {
		return "", fmt.Errorf("unit %s was already loaded", unit)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if name := files["StandardInput"]; name != "" {
		in, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer in.Close()
		cmd.Stdin = in
	}
	code := 0
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		return "", err
	}
	// The program may be a fake as well.
	now, err := loadWorld(worldFile())
	if err != nil {
		return "", err
	}
	*w = now
	if w.Transient == nil {
		w.Transient = map[string]*transient{}
	}
	w.Transient[unit] = &transient{Running: w.OnRun == "linger", Code: code}
	return "", errors.Join(os.WriteFile(files["StandardOutput"], out.Bytes(), 0o600),
		os.WriteFile(files["StandardError"], errs.Bytes(), 0o600))
}

func showUnit(w *world, name string, u *fakeUnit) string {
	load, file, active := "not-found", "", "inactive"
	if w.has(name) {
		load, file = "loaded", "disabled"
	}
	if u.Enabled {
		file = "enabled"
	}
	if u.Masked {
		load, file = "masked", "masked"
	}
	switch {
	case u.Active:
		active = "active"
	case u.Failed:
		active = "failed"
	}
	started := u.Started
	if started.IsZero() {
		started = time.Now()
	}
	since := u.Since.Microseconds()
	if since == 0 {
		since = int64(u.Starts)
	}
	yes := map[bool]string{true: "yes", false: "no"}
	return fmt.Sprintf("LoadState=%s\nUnitFileState=%s\nActiveState=%s\nSubState=%s\nNeedDaemonReload=%s\nConditionResult=%s\n"+
		"Result=success\nExecMainStartTimestampMonotonic=%d\nExecMainStartTimestamp=%s\n",
		load, file, active, u.Sub, yes[u.NeedReload], yes[!u.NoStart], since, started.UTC().Format("Mon 2006-01-02 15:04:05 MST"))
}
