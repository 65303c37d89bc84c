//go:build linux

package pods

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// PodLogOp executes op.PodLog.
type PodLogOp struct{ Op op.PodLog }

// PodLogsOp executes op.PodLogs.
type PodLogsOp struct{ Op op.PodLogs }

func (x *PodLogsOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	return PodLogNames(ctx, h, x.Op)
}

const (
	logDir     = "/var/log"
	podsDir    = "pods"
	dockerLogs = "/var/lib/docker/containers"
	// MostEntriesIn limits how many entries of one directory are read, because pods can
	// fill directories.
	MostEntriesIn = 4096
	// MostEntries limits how many entries of all directories are read.
	MostEntries = 8192
)

// dockerLog matches a container's log below dockerLogs.
var dockerLog = regexp.MustCompile(`^([0-9a-f]{64})/([0-9a-f]{64})-json\.log$`)

// PodLogNames lists the logs of the cluster's own pods.
func PodLogNames(ctx context.Context, h *host.Host, o op.PodLogs) (host.CheckResult, error) {
	type entry struct {
		name string
		at   time.Time
	}
	found, err := findPodLogs(ctx, h)
	if err != nil {
		return host.CheckResult{}, err
	}
	var all []entry
	for _, name := range found {
		if ctx.Err() != nil {
			return host.CheckResult{}, context.Cause(ctx)
		}
		if f, err := openPodLog(h, name); err == nil {
			if info, err := f.Stat(); err == nil {
				all = append(all, entry{name, info.ModTime()})
			}
			_ = f.Close()
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return b.at.Compare(a.at) })
	names := []string{}
	for _, e := range all[:min(len(all), max(o.Most, 0))] {
		names = append(names, e.name)
	}
	v := host.CheckResult{}
	v.Output, err = json.Marshal(names)
	return v, err
}

// findPodLogs returns the names of logs of the cluster's own pods, at most MostEntries.
// It reads the directories of pods first, then the directories of their containers.
func findPodLogs(ctx context.Context, h *host.Host) ([]string, error) {
	left := MostEntries
	found, err := listNames(h, podsDir, left)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	left -= len(found)
	found = slices.DeleteFunc(found, func(pod string) bool { return !strings.HasPrefix(pod, "kube-") })
	for range 2 {
		var below []string
		for _, dir := range found {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			names, _ := listNames(h, path.Join(podsDir, dir), left) // a link, or removed meanwhile
			left -= len(names)
			for _, name := range names {
				below = append(below, path.Join(dir, name))
			}
		}
		found = below
	}
	return slices.DeleteFunc(found, func(name string) bool { return !op.IsPodLog(name) }), nil
}

// Check reads the end of such a log.
func (x *PodLogOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	if o.Bytes <= 0 || o.Bytes > host.MaxRead {
		return host.CheckResult{}, host.Invalid("%d bytes of a log are too many for a reply", o.Bytes)
	}
	f, err := openPodLog(h, o.Name)
	if err != nil {
		return host.CheckResult{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.Size() > o.Bytes {
		_, err = f.Seek(-o.Bytes, io.SeekEnd)
	}
	if err != nil {
		return host.CheckResult{}, err
	}
	v := host.CheckResult{}
	v.Output, err = bounded.ReadAll(f, o.Bytes)
	if errors.As(err, new(*bounded.LimitError)) { // it has grown meanwhile
		err = nil
	}
	return v, err
}

// openPodLog opens a log by its name below /var/log/pods. Pods can have write access to
// /var/log: each part of the path is opened separately, and must not be a link. With
// Docker, the log is a link to the log that Docker writes, which pods cannot reach.
func openPodLog(h *host.Host, name string) (*os.File, error) {
	if !op.IsPodLog(name) {
		return nil, host.Invalid("%q is not a pod log name", name)
	}
	dir, base, err := openParent(h, logDir, path.Join(podsDir, name))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := openAt(dir, base, unix.O_NONBLOCK)
	if errors.Is(err, unix.ELOOP) {
		return openDockerLog(h, dir, base)
	}
	return onlyFile(f, err)
}

// openDockerLog opens the target of a pod's log, if it is a log of Docker.
func openDockerLog(h *host.Host, dir *os.File, link string) (*os.File, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(dir.Fd()), link, buf)
	if err != nil {
		return nil, &fs.PathError{Op: "readlink", Path: link, Err: err}
	}
	to, below := strings.CutPrefix(string(buf[:n]), dockerLogs+"/")
	if m := dockerLog.FindStringSubmatch(to); !below || m == nil || m[1] != m[2] {
		return nil, &fs.PathError{Op: "open", Path: link, Err: errors.New("it is a symbolic link, but not to a Docker log")}
	}
	target, base, err := openParent(h, dockerLogs, to)
	if err != nil {
		return nil, err
	}
	defer target.Close()
	return onlyFile(openAt(target, base, unix.O_NONBLOCK))
}

// listNames returns the names in a directory below /var/log, at most most of them.
func listNames(h *host.Host, name string, most int) ([]string, error) {
	if most <= 0 { // Readdirnames would return all
		return nil, nil
	}
	dir, base, err := openParent(h, logDir, name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := openAt(dir, base, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(min(most, MostEntriesIn))
	if errors.Is(err, io.EOF) {
		err = nil
	}
	slices.Sort(names)
	return names, err
}

// openParent opens the parent directory of a path below a root, without following a link
// below the root.
func openParent(h *host.Host, root, name string) (*os.File, string, error) {
	dir, err := os.Open(h.DiskPath(root))
	if err != nil {
		return nil, "", err
	}
	parts := strings.Split(name, "/")
	for _, part := range parts[:len(parts)-1] {
		next, err := openAt(dir, part, unix.O_DIRECTORY)
		_ = dir.Close() // it was only read
		if err != nil {
			return nil, "", err
		}
		dir = next
	}
	return dir, parts[len(parts)-1], nil
}

// openAt opens an entry of a directory for reading, but not a link.
func openAt(dir *os.File, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path.Join(dir.Name(), name), Err: err}
	}
	return os.NewFile(uintptr(fd), path.Join(dir.Name(), name)), nil
}

// onlyFile rejects an open file that is not a regular file.
func onlyFile(f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: f.Name(), Err: errors.New("not a regular file")}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
