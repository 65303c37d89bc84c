package operation

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestKinds_HaveValueForEveryField fails if a kind leaves a field undecided.
func TestKinds_HaveValueForEveryField(t *testing.T) {
	for kind, r := range rows {
		v := reflect.ValueOf(r)
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%s: %s is undecided", kind, v.Type().Field(i).Name)
			}
		}
	}
}

// TestKinds_KeepTheirSavedNames freezes the names: saved operations and plans have them.
func TestKinds_KeepTheirSavedNames(t *testing.T) {
	want := []Kind{
		"add-nodes", "apply", "create", "delete", "delete-nodes", "etcd-defrag", "etcd-drill", "etcd-rescue", "etcd-restore",
		"etcd-snapshot", "forget-nodes", "init-os", "init-registry", "reboot-nodes", "renew-certs", "resume", "rollback",
		"rollback-upgrade", "rotate-ca", "upgrade",
	}
	if got := Kinds(); !slices.Equal(got, want) {
		t.Errorf("kinds %v, want %v", got, want)
	}
}

// TestKinds_HaveConsistentProperties checks the facts of each kind against each other.
func TestKinds_HaveConsistentProperties(t *testing.T) {
	for _, k := range Kinds() {
		for _, tc := range []struct {
			reason string
			wrong  bool
		}{
			{"only an operation that sets the status finishes an earlier one", k.Supersedes() && !k.SetsStatus()},
			{"an earlier operation still has to bring its description to the restored data", k.Supersedes() && k.ReplacesEtcdData()},
			{"an operation that is run again must not be the one that a cluster waits for", !k.Resumable() && k.Supersedes()},
			{"add-ons come from a bundle's images", k.ManagesAddons() && !k.NeedsBundle()},
			{"new nodes or versions change the description", (k.ChangesNodes() || k.ChangesVersion()) && !k.ChangesCluster()},
			{"hosts that disagree about etcd's data lose some of it", k.ReplacesEtcdData() && !k.StopsOnFailure()},
			{"a right to change a cluster is not one to remove it", (k.ClusterRight() == "delete") != k.RemovesCluster()},
			{"only hosts that are added or removed are known not to concern the others", (k.Hosts() == ChangedHosts) != k.ChangesNodes()},
		} {
			if tc.wrong {
				t.Errorf("%s: %s", k, tc.reason)
			}
		}
		if back, ok := k.RollbackKind(); ok && !back.Known() {
			t.Errorf("%s is rolled back by %q, which is not a kind", k, back)
		}
		if on := k.OnNewCluster(); !on.Known() {
			t.Errorf("%s becomes %q, which is not a kind", k, on)
		}
	}
}

// TestCommands_NameClusterOrItsFile checks that each command can be typed, and names the cluster or its file.
func TestCommands_NameClusterOrItsFile(t *testing.T) {
	e := End{Cluster: "prod", Nodes: []string{"w1"}}
	for _, k := range Kinds() {
		for name, text := range map[string]string{"next": k.Next(e), "undo": k.Undo(e), "resume": k.Resume(e), "on failure": k.OnFailure(e)} {
			if text != "" && (!strings.Contains(text, "slipway ") || !strings.Contains(text, "prod") && !strings.Contains(text, "FILE")) {
				t.Errorf("%s, %s: %q", k, name, text)
			}
		}
		if k.Rollback(e) == "" {
			t.Errorf("%s does not answer how to roll it back", k)
		}
	}
}

// A kind of another version counts as one that must be finished first.
func TestUnknownKind_CountsAsResumableChange(t *testing.T) {
	k := Kind("of-another-version")
	if k.Known() || !k.Resumable() || !k.Supersedes() || !k.SetsStatus() {
		t.Errorf("known %v, resumable %v, supersedes %v, sets the status %v", k.Known(), k.Resumable(), k.Supersedes(), k.SetsStatus())
	}
	if got := k.Verb(); got != string(k) {
		t.Errorf("verb %q, want the kind itself", got)
	}
	if got, want := k.Resume(End{Cluster: "prod"}), "slipway resume prod"; got != want {
		t.Errorf("resume with %q, want %q", got, want)
	}
}

func TestUpgradeCommand_NamesVersionAndFile(t *testing.T) {
	for _, tc := range []struct{ file, want string }{
		{"", "slipway upgrade prod --to v1.37.1"},
		{"/srv/prod.yaml", "slipway upgrade prod --to v1.37.1 -f /srv/prod.yaml"},
		{"-", "slipway upgrade prod --to v1.37.1 -f FILE"},
	} {
		if got := UpgradeCommand("prod", "v1.37.1", tc.file); got != tc.want {
			t.Errorf("file %q: %q, want %q", tc.file, got, tc.want)
		}
	}
}
