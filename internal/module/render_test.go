package module

import "testing"

// TestUnitMounts_FollowsSystemdRules: systemd.syntax(7) removes quotes and backslashes,
// and % begins a specifier; $ has no special meaning in a setting.
func TestUnitMounts_FollowsSystemdRules(t *testing.T) {
	for _, tt := range []struct {
		name, reason string
		dirs         []string
		want         string
	}{
		{"one", "a word", []string{"/var/lib/kubelet"}, `"/var/lib/kubelet"`},
		{"two", "a list of words", []string{"/var/lib/kubelet", "/var/lib/etcd"}, `"/var/lib/kubelet" "/var/lib/etcd"`},
		{"a name with a space, a per cent and a dollar", "still one word", []string{`/srv/a b/50%/$x`}, `"/srv/a b/50%%/$x"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := UnitMounts(tt.dirs...); got != tt.want {
				t.Errorf("got %s, want %s: %s", got, tt.want, tt.reason)
			}
		})
	}
}
