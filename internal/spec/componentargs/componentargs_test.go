package componentargs

import (
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/release/settings"
)

// TestTable_HasFlagsOfComponents finds names that no version has.
func TestTable_HasFlagsOfComponents(t *testing.T) {
	tables, err := settings.ReadTables()
	if err != nil {
		t.Fatal(err)
	}
	has := func(component, name string) bool {
		return slices.ContainsFunc(tables, func(table settings.Table) bool {
			return slices.ContainsFunc(table.FlagNames(component), func(flag string) bool {
				return flag == name || strings.HasSuffix(name, "-") && strings.HasPrefix(flag, name)
			})
		})
	}
	for component, names := range table {
		for name := range names {
			if name == "config-file" && component == settings.Etcd {
				continue // etcd reads it before its other flags, and the tables do not have it
			}
			if !has(component, name) {
				t.Errorf("no version of %s has the flag %s", component, name)
			}
		}
	}
}

func TestIsManaged_AcceptsValuesThatChangeNothing(t *testing.T) {
	for _, tc := range []struct {
		component, name, value string
		want                   bool
	}{
		{settings.APIServer, "secure-port", "7443", true},
		{settings.APIServer, "bind-address", "127.0.0.1", true},
		{settings.APIServer, "bind-address", "0.0.0.0", false},
		{settings.ControllerManager, "leader-elect", "true", false},
		{settings.Etcd, "initial-cluster-token", "x", true},
		{settings.Etcd, "config-file", "/etc/etcd.yaml", true},
		{settings.Etcd, "initial-election-tick-advance", "false", false},
		{settings.Scheduler, "v", "4", false},
	} {
		if _, got := IsManaged(tc.component, tc.name, tc.value); got != tc.want {
			t.Errorf("%s --%s=%s: managed %t, want %t", tc.component, tc.name, tc.value, got, tc.want)
		}
	}
}
