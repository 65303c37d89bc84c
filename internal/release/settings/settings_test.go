package settings_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/release/settings"
)

// TestTables_CoverEveryMinor wants a table for every minor of the release catalogue, of its newest
// patch, and in each table what every minor has.
func TestTables_CoverEveryMinor(t *testing.T) {
	catalogue, err := release.Load("")
	if err != nil {
		t.Fatal(err)
	}
	newest := map[string]string{}
	for _, v := range catalogue.SupportedVersions() { // oldest first
		newest[v[:strings.LastIndex(v, ".")]] = v
	}
	tables, err := settings.ReadTables()
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, v := range newest {
		r, err := catalogue.ResolveVersion(v)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, v+" "+r.Etcd)
	}
	slices.Sort(want)
	for _, table := range tables {
		got = append(got, table.Kubernetes+" "+table.Etcd)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("tables, oldest first (-of the catalogue +there are); "+
			"TestSettings_EqualPrograms of internal/bundle/source/modules makes them:\n%s", d)
	}
	for _, table := range tables {
		for component, least := range map[string]struct {
			flags int
			flag  string
			kind  string
		}{
			settings.APIServer:         {150, "audit-log-maxage", "int"},
			settings.ControllerManager: {120, "terminated-pod-gc-threshold", "int32"},
			settings.Scheduler:         {50, "leader-elect", "bool"},
			settings.Kubelet:           {100, "root-dir", "string"},
			settings.Proxy:             {40, "v", "Level"},
			settings.Etcd:              {100, "heartbeat-interval", ""},
		} {
			kind, ok := table.FlagType(component, least.flag)
			if n := len(table.FlagNames(component)); n < least.flags || !ok || kind != least.kind {
				t.Errorf("%s of %s has %d flags, and --%s of type %q", component, table.Kubernetes, n, least.flag, kind)
			}
		}
		if len(table.Gates) < 200 {
			t.Errorf("%s has %d gates", table.Kubernetes, len(table.Gates))
		}
		for name, gate := range table.Gates {
			if !slices.Contains([]string{"alpha", "beta", "ga", "deprecated"}, gate.Stage) || !gate.IsKnownTo(settings.APIServer) {
				t.Errorf("%s: %s is %+v", table.Kubernetes, name, gate)
			}
		}
	}
}

// TestGates_MatchTheSources has gates of the minors as their sources have them.
func TestGates_MatchTheSources(t *testing.T) {
	tables, err := settings.ReadTables()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, table := range tables {
		for _, name := range []string{"SidecarContainers", "TTLAfterFinished", "ControllerManagerReleaseLeaderElectionLockOnExit", "AllAlpha"} {
			word := "-"
			if g, ok := table.Gates[name]; ok {
				word = g.Stage
				if g.Locked {
					word += " locked"
				}
				if !g.IsKnownTo(settings.Scheduler) {
					word += " but the scheduler"
				}
			}
			got[name] += table.Minor() + ": " + word + "; "
		}
	}
	if d := cmp.Diff(map[string]string{
		"SidecarContainers": "1.35: ga locked; 1.36: ga locked; 1.37: -; ",
		"TTLAfterFinished":  "1.35: -; 1.36: -; 1.37: -; ",
		"AllAlpha":          "1.35: alpha; 1.36: alpha; 1.37: alpha; ",
		"ControllerManagerReleaseLeaderElectionLockOnExit": "1.35: -; 1.36: alpha but the scheduler; 1.37: alpha but the scheduler; ",
	}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
