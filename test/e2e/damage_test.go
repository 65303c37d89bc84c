//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// blobPath returns the path of a component in the cached bundle.
func (u *user) blobPath(t *testing.T, component string) string {
	t.Helper()
	type inspected struct {
		Components []struct{ Name, Digest string }
	}
	for _, c := range decodeJSON[inspected](t, u.mustRun(t, "bundle", "inspect", testedVersion(), "-o", "json")).Components {
		if c.Name != component {
			continue
		}
		blobs, err := filepath.Glob(filepath.Join(cacheDir(), "bundles", testedVersion()+"_*", "blobs", "sha256",
			strings.TrimPrefix(c.Digest, "sha256:")))
		if err != nil || len(blobs) == 0 {
			t.Fatalf("%s is not in the cache: %v", component, err)
		}
		return blobs[0]
	}
	t.Fatalf("the bundle has no %s", component)
	return ""
}

// A damaged bundle is a copy of the cached one of which a blob is not what it
// should be.
type damaged struct{ dir, original, copied string }

// damageBundle makes a damaged bundle that has all of the original but one
// component, which is still to be put there.
func (u *user) damageBundle(t *testing.T, component string) damaged {
	t.Helper()
	d := damaged{dir: filepath.Join(u.home, "damaged"), original: u.blobPath(t, component)}
	blobs := filepath.Join("blobs", "sha256")
	d.copied = filepath.Join(d.dir, blobs, filepath.Base(d.original))
	from := strings.TrimSuffix(d.original, filepath.Join(blobs, filepath.Base(d.original)))
	if err := os.MkdirAll(filepath.Join(d.dir, blobs), 0o755); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(from, blobs, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(files, filepath.Join(from, "oci-layout"), filepath.Join(from, "index.json")) {
		name := strings.TrimPrefix(f, from)
		if f == d.original {
			continue
		}
		if err := os.Symlink(f, filepath.Join(d.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// putComponent writes the component as change makes it of the original.
func (d damaged) putComponent(t *testing.T, change func(content []byte) []byte) {
	t.Helper()
	content, err := os.ReadFile(d.original)
	if err == nil {
		err = os.WriteFile(d.copied, change(content), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// refusesBadHosts runs a create with a machine of another architecture than in the file,
// and with a machine whose kubelet port is in use. The output has a line for each with the
// cause and the remedy, and neither machine is changed.
func (u *user) refusesBadHosts(t *testing.T, file string, machines []string, before map[string]snapshot) {
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	editSpec(t, file, func(spec map[string]any) { spec["hosts"].([]any)[0].(map[string]any)["arch"] = "arm64" })
	u.mustExec(t, machines[1], "systemd-run", "-q", "--unit=own-port", "/usr/sbin/sshd", "-D", "-o", "PidFile=none", "-p", "10250")
	r := u.mustExit(t, 2, "create", "cluster", "-f", file, "--yes")
	u.mustExec(t, machines[1], "systemctl", "stop", "own-port")
	for machine, want := range map[string][]string{
		machines[0]: {"wrong-architecture", "the host's architecture is amd64, but the cluster file has arm64", "write arch: amd64"},
		machines[1]: {"port-in-use", "port 10250/tcp is in use by sshd; kubelet needs it", "stop the process, or move it to another port"},
	} {
		if !toldTogether(r.stderr, machine, want) {
			t.Errorf("nothing names %s, %q:\n%s", machine, want, r.stderr)
		}
	}
	for _, m := range machines {
		requireSame(t, m+" after a refusal", "touched", before[m], u.takeSnapshot(t, m))
	}
	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
}

// toldTogether reports whether all of these texts are in one line, or in the line and the
// next one, which has the remedy.
func toldTogether(text, machine string, want []string) bool {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if !strings.Contains(line, machine) {
			continue
		}
		both, all := strings.Join(lines[i:min(i+2, len(lines))], "\n"), true
		for _, w := range want {
			all = all && strings.Contains(both, w)
		}
		if all {
			return true
		}
	}
	return false
}

// refusesTruncated has a create meet a bundle that was cut short on its way.
func (u *user) refusesTruncated(t *testing.T, file string, d damaged) {
	d.putComponent(t, func(content []byte) []byte { return content[:len(content)/2] })
	editSpec(t, file, func(spec map[string]any) { spec["bundle"] = d.dir })
	r := u.mustExit(t, 2, "create", "cluster", "-f", file, "--yes")
	for _, want := range []string{"bundle-corrupt", filepath.Base(d.original), "(etcd", "copy or build the bundle again"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("the refusal of a truncated bundle does not say %q:\n%s", want, r.stderr)
		}
	}
}
