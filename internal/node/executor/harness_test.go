//go:build linux

package executor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/executor/etcd"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/testutil/racesample"
)

// TestMain lets this binary stand in for the programs that a Runner calls. Through links
// named systemctl and so on, it responds from a state file next to the link and rejects
// unexpected calls.
func TestMain(m *testing.M) {
	// The race detector makes a program sleep for a second in os.Exit.
	if fake, ok := fakes[filepath.Base(os.Args[0])]; ok {
		unix.Exit(runFake(fake))
	}
	if plan := os.Getenv(crashEnv); plan != "" {
		unix.Exit(crashChild(plan))
	}
	os.Exit(m.Run())
}

// testHost represents a machine as a directory of files.
type testHost struct {
	t     *testing.T
	r     *Runner
	fakes string
	blobs blobs
}

func newHost(t *testing.T) *testHost {
	t.Helper()
	racesample.SkipUnlessIn(t, 3)
	dir := memory(t)
	h := &testHost{t: t, fakes: filepath.Join(dir, "fakes"), blobs: blobs{}}
	root := filepath.Join(dir, "root")
	h.r = &Runner{Root: root, State: filepath.Join(root, "var/lib/slipway"), Path: h.fakes + ":/usr/sbin:/usr/bin:/sbin:/bin", Blobs: h.blobs}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(h.fakes, 0o755); err != nil {
		t.Fatal(err)
	}
	for name := range fakes {
		if err := os.Symlink(self, filepath.Join(h.fakes, name)); err != nil {
			t.Fatal(err)
		}
	}
	h.world(world{Root: root, Units: map[string]*fakeUnit{}, Images: map[string]fakeImage{}})
	for name, content := range map[string]string{
		"etc/passwd":                            "root:x:0:0:root:/root:/bin/bash\nkeeper:x:999:999::/:/bin/false\n",
		"etc/group":                             "root:x:0:\nkeeper:x:999:\n",
		"etc/shadow":                            "root:*:1::::::\n",
		"etc/hostname":                          "before\n",
		"etc/fstab":                             "/dev/vda1 / ext4 defaults 0 1\n/dev/vda2 none swap sw 0 0\n",
		"etc/hosts":                             "127.0.0.1 localhost",
		"proc/swaps":                            "Filename Type Size Used Priority\n",
		"proc/modules":                          "overlay 1 0 - Live 0x0\n",
		"proc/sys/kernel/hostname":              "before",
		"proc/sys/kernel/osrelease":             "6.1.0\n",
		"proc/sys/kernel/random/boot_id":        "boot-1\n",
		"proc/sys/net/ipv4/ip_forward":          "0\n",
		"proc/sys/net/ipv4/tcp_rmem":            "4096\t131072\t6291456\n",
		"usr/share/zoneinfo/Europe/Berlin":      "TZif",
		"usr/share/zoneinfo/UTC":                "TZif",
		"lib/modules/6.1.0/modules.builtin":     "kernel/net/nf_tables.ko\n",
		"lib/systemd/system/lib.service":        "[Service]\n",
		"etc/systemd/system/old.service":        "[Service]\nold\n",
		"etc/os-release":                        "ID=debian\nVERSION_ID=\"12\"\n",
		"usr/sbin/nologin":                      "",
		"var/lib/other/file":                    "of others\n",
		"usr/lib/systemd/system/chrony.service": "[Service]\n",
		"etc/chrony/chrony.conf":                "pool debian.pool.ntp.org\n",
	} {
		h.write(name, content)
	}
	return h
}

// memory is a directory in memory, where syncing costs nothing.
func memory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "slipway-run-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func (h *testHost) path(name string) string { return filepath.Join(h.r.Root, name) }

func (h *testHost) write(name, content string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(h.path(name)), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(h.path(name), []byte(content), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *testHost) read(name string) string {
	h.t.Helper()
	raw, err := os.ReadFile(h.path(name))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(raw)
}

func (h *testHost) batch(ops ...op.Op) host.Batch {
	return host.Batch{Operation: "create-1", Step: "step", Cluster: "demo", Fence: 1, Ops: ops}
}

// apply applies operations and fails the test on an error.
func (h *testHost) apply(ops ...op.Op) []op.Result {
	h.t.Helper()
	results := h.r.Apply(context.Background(), h.batch(ops...), nil)
	for _, r := range results {
		if r.Status == op.Failed {
			h.t.Fatalf("%s %s failed: %+v", r.Kind, r.Target, *r.Error)
		}
	}
	return results
}

func (h *testHost) check(ops ...op.Op) []op.Result {
	h.t.Helper()
	return h.r.Check(context.Background(), ops)
}

// entry holds the properties of a path, to compare hosts.
type entry struct {
	Mode    fs.FileMode
	UID     uint32
	GID     uint32
	Content string
}

// snapshot returns all files of a host except its state directory.
func (h *testHost) snapshot() map[string]entry {
	h.t.Helper()
	return snapshot(h.t, h.r.Root)
}

func snapshot(t *testing.T, root string) map[string]entry {
	t.Helper()
	out := map[string]entry{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		e := entry{Mode: info.Mode(), UID: host.StatOf(info).Uid, GID: host.StatOf(info).Gid}
		switch {
		case info.Mode().IsRegular():
			raw, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			e.Content = string(raw)
		case info.Mode()&fs.ModeSymlink != 0:
			e.Content, err = os.Readlink(p)
		}
		// The number of the last lock is kept until the next boot of the host.
		if rel := strings.TrimPrefix(p, root); rel != "/run" && rel != "/run/slipway" && rel != "/run/slipway/fence" {
			out[rel] = e
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// blobs represents a manager that has content.
type blobs map[string][]byte

func (b blobs) add(content []byte) op.Blob {
	sum := sha256.Sum256(content)
	d := "sha256:" + hex.EncodeToString(sum[:])
	b[d] = content
	return op.Blob{Digest: d, Size: int64(len(content))}
}

func (b blobs) FetchBlob(_ context.Context, blob op.Blob, offset int64, w io.Writer) (host.Fetched, error) {
	c, ok := b[blob.Digest]
	if !ok {
		return nil, fmt.Errorf("no blob %s", blob.Digest)
	}
	_, err := w.Write(c[offset:])
	return &fetched{}, err
}

func (b blobs) MakeRoom() {}

// fetched records the paths of verified content.
type fetched struct {
	shared bool
	paths  []string
}

func (f *fetched) Shared() bool { return f.shared }

func (f *fetched) Verified(path string) { f.paths = append(f.paths, path) }

func (f *fetched) Close() error { return nil }

// world holds the state that the fake programs share.
type world struct {
	Root    string
	Units   map[string]*fakeUnit
	Images  map[string]fakeImage
	Reloads int
	Boots   int // reboots
	Calls   []string
	// Transient are the units made by systemd-run. OnRun changes how units run. With
	// "linger", they seem to run after their program has ended. With "cut before" and
	// "cut after", other units fail before or after their start. With "write X", a unit
	// writes X to a file.
	Transient map[string]*transient
	OnRun     string
	// Etcd are the members of a cluster. Of its other endpoints, only
	// "https://votes:2379" responds.
	Etcd []etcd.Member
	// States has the status of members by their endpoint. OnSnapshot is the snapshot that
	// a member sends, or "fail".
	States     map[string]*etcd.Status
	Cluster    string // the minor version of the etcd cluster
	Slow       bool   // members do not change their storage version
	OnSnapshot string
	// Values are the keys of etcd with their values.
	Values map[string]string
	// Unwell is how often etcd refuses to change its members, and Behind how often it
	// refuses to promote a learner.
	Unwell, Behind int
}

type transient struct {
	Running, Killed bool
	MayStop         bool // while it runs
	Code            int
}

// settle ends the lingering units.
func (w *world) settle() {
	for _, u := range w.Transient {
		u.Running = false
	}
}

type fakeUnit struct {
	Enabled, Active, Masked bool
	Sub, Result, Status     string
	NeedReload, NoStart     bool
	FailsOnStop, Failed     bool // as a job that is stopped while it runs
	Starts                  int
	Started                 time.Time     // by the clock as it was; zero is now
	Since                   time.Duration // when, after boot; zero is Starts, in microseconds
}

type fakeImage struct {
	Digest string
	Pinned bool
}

func (h *testHost) world(w world) {
	h.t.Helper()
	if err := saveWorld(filepath.Join(h.fakes, "world.json"), w); err != nil {
		h.t.Fatal(err)
	}
}

func (h *testHost) see() world {
	h.t.Helper()
	w, err := loadWorld(filepath.Join(h.fakes, "world.json"))
	if err != nil {
		h.t.Fatal(err)
	}
	return w
}

// saveWorld replaces the file atomically: several programs may run.
func saveWorld(path string, w world) error {
	raw, err := json.Marshal(w)
	if err != nil {
		return err
	}
	part := fmt.Sprintf("%s.%d", path, os.Getpid())
	return errors.Join(os.WriteFile(part, raw, 0o644), os.Rename(part, path))
}

func loadWorld(path string) (world, error) {
	var w world
	raw, err := os.ReadFile(path)
	if err != nil {
		return w, err
	}
	return w, json.Unmarshal(raw, &w)
}

var fakes = map[string]func(w *world, args []string) (string, error){
	"systemctl":   fakeSystemctl,
	"systemd-run": fakeSystemdRun,
	"ctr":         fakeCtr,
	"etcd":        fakeEtcd,
	"etcdctl":     fakeEtcdctl,
	"etcdutl":     fakeEtcdutl,
	"modprobe":    fakeModprobe,
	"swapoff":     fakeSwap,
	"swapon":      fakeSwap,
	"journalctl":  func(*world, []string) (string, error) { return "the journal\n", nil },
}

// worldFile returns the path of the world for a fake.
func worldFile() string { return filepath.Join(filepath.Dir(os.Args[0]), "world.json") }

func runFake(fake func(*world, []string) (string, error)) int {
	state := worldFile()
	w, err := loadWorld(state)
	if err == nil {
		var out string
		out, err = fake(&w, os.Args[1:])
		fmt.Print(out)
		w.Calls = append(w.Calls, filepath.Base(os.Args[0])+" "+strings.Join(os.Args[1:], " "))
		if serr := saveWorld(state, w); err == nil {
			err = serr
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (w *world) has(name string) bool {
	for _, dir := range []string{"etc/systemd/system", "lib/systemd/system", "usr/lib/systemd/system"} {
		if _, err := os.Stat(filepath.Join(w.Root, dir, name)); err == nil {
			return true
		}
	}
	return false
}

func (w *world) unit(name string) *fakeUnit {
	if w.Units[name] == nil {
		w.Units[name] = &fakeUnit{}
	}
	return w.Units[name]
}

func fakeModprobe(w *world, args []string) (string, error) {
	if len(args) != 2 || args[0] != "--" {
		return "", fmt.Errorf("unexpected: modprobe %q", args)
	}
	if args[1] == "nosuch" {
		return "", fmt.Errorf("modprobe: FATAL: Module nosuch not found")
	}
	f, err := os.OpenFile(filepath.Join(w.Root, "proc/modules"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%s 1 0 - Live 0x0\n", args[1])
	return "", err
}

func fakeSwap(w *world, args []string) (string, error) {
	p := filepath.Join(w.Root, "proc/swaps")
	content := "Filename Type Size Used Priority\n"
	switch {
	case filepath.Base(os.Args[0]) == "swapoff" && len(args) == 2 && args[0] == "--":
	case filepath.Base(os.Args[0]) == "swapon" && args[len(args)-2] == "--":
		content += args[len(args)-1] + " partition 1 0 -2\n"
	default:
		return "", fmt.Errorf("unexpected: %q", os.Args)
	}
	return "", os.WriteFile(p, []byte(content), 0o644)
}
