package hostselector

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
)

func TestSelect_ReturnsHosts(t *testing.T) {
	c := &v1alpha1.Cluster{}
	for _, h := range []struct {
		name, address string
		role          v1alpha1.Role
	}{
		{"cp", "10.0.0.1", "control-plane"},
		{"node1", "10.0.0.2", "worker"},
		{"node2", "10.0.0.3", "worker"},
		{"node10", "10.0.0.4", "worker"},
		{"e-01.lan", "10.0.0.5", "worker"},
		{"e-02.lan", "10.0.0.6", "worker"},
	} {
		c.Spec.Hosts = append(c.Spec.Hosts, v1alpha1.Host{Name: h.name, Address: h.address, Roles: []v1alpha1.Role{h.role}})
	}
	c.Spec.Hosts[5].InternalAddress = "fd00::6"
	for _, tc := range []struct {
		selector, reason string
		want             string
		err              string
	}{
		{"node1", "by name", "node1", ""},
		{"10.0.0.3", "by address", "node2", ""},
		{"node2, cp,node2", "each once, in the order of the file", "cp node2", ""},
		{"node[1:2]", "both ends count", "node1 node2", ""},
		{"e-[01:02].lan", "leading zeros set the width", "e-01.lan e-02.lan", ""},
		{"role=worker", "by role", "node1 node2 node10 e-01.lan e-02.lan", ""},
		{"e-*,node?", "by pattern", "node1 node2 e-01.lan e-02.lan", ""},
		{"[fd00::6]", "an IPv6 address in brackets", "e-02.lan", ""},
		{"[FD00:0::6]", "in another spelling", "e-02.lan", ""},
		{"FD00:0::6,::ffff:10.0.0.3", "without brackets", "node2 e-02.lan", ""},
		{
			"x*", "a pattern that fits nothing", "",
			"no host name matches \"x*\" [unknown-host]\n    hint: use one of these hosts: cp, node1, node2, node10, e-01.lan, e-02.lan",
		},
		{"all", "everything", "cp node1 node2 node10 e-01.lan e-02.lan", ""},
		{
			"nod2,node[9:11]", "all that is unknown is said at once",
			"", "there is no host \"nod2\" [unknown-host]\n    hint: did you mean node2?\n" +
				"there is no host \"node9\" [unknown-host]\n    hint: did you mean node1 or node2 or node10?\n" +
				"there is no host \"node11\" [unknown-host]\n    hint: did you mean node1 or node10 or node2?",
		},
		{"role=wroker", "a role nobody has", "", "no host has the role \"wroker\" [unknown-host]\n    hint: did you mean worker?"},
		{
			"zone=a", "only roles have names", "",
			"hosts cannot be selected by \"zone\" [invalid-selector]\n    hint: use names, addresses, ranges, patterns or role=worker",
		},
		{"", "nothing is not everything", "", "the selector has an empty item [invalid-selector]\n    hint: write a range as node[2:10]"},
		{"node[3:", "unfinished", "", "\"node[3:\" is not a range of names [invalid-selector]\n    hint: write a range as node[2:10]"},
		{
			"node[3:1]", "backwards",
			"", "the range \"node[3:1]\" is empty or has more than 10000 names [invalid-selector]\n    hint: write a range as node[2:10]",
		},
		{
			"node[0:999999999]", "bounded", "",
			"the range \"node[0:999999999]\" is empty or has more than 10000 names [invalid-selector]\n    hint: write a range as node[2:10]",
		},
	} {
		t.Run(tc.selector, func(t *testing.T) { checkSelector(t, c, tc.selector, tc.reason, tc.want, tc.err) })
	}
}

// checkSelector wants a selector to choose hosts by these names, or to be refused.
func checkSelector(t *testing.T, c *v1alpha1.Cluster, selector, reason, want, refusal string) {
	t.Helper()
	hosts, err := SelectHosts(c, selector)
	var names []string
	for _, h := range hosts {
		names = append(names, h.Name)
	}
	got := ""
	if err != nil {
		got = err.Error()
	}
	if d := cmp.Diff(want, strings.Join(names, " ")) + cmp.Diff(refusal, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", reason, d)
	}
}

// TestSelect_RefusesAmbiguousAddresses has addresses that are of several hosts, in the networks
// of SSH and of the nodes.
func TestSelect_RefusesAmbiguousAddresses(t *testing.T) {
	c := &v1alpha1.Cluster{}
	c.Spec.Hosts = []v1alpha1.Host{
		{Name: "a", Address: "203.0.113.1", InternalAddress: "10.0.0.12"},
		{Name: "b", Address: "10.0.0.12", InternalAddress: "10.1.0.5"},
		{Name: "c", Address: "203.0.113.7", InternalAddress: "10.1.0.6"},
		{Name: "d", Address: "203.0.113.7", InternalAddress: "10.1.0.7"},
		{Name: "gw", Address: "b", InternalAddress: "10.1.0.8"},
		{Name: "alone", Address: "10.1.0.9", InternalAddress: "10.1.0.9"},
	}
	for _, tc := range []struct{ selector, reason, want, err string }{
		{
			"10.0.0.12", "one may be taken for the other",
			"", "10.0.0.12 is the address of several hosts: a, b [ambiguous-host]\n    hint: use a host name",
		},
		{
			"203.0.113.7", "there are two machines behind the gateway", "",
			"203.0.113.7 is the address of several hosts: c, d [ambiguous-host]\n    hint: use a host name",
		},
		{"10.1.0.5,10.1.0.7", "addresses of one host each", "b d", ""},
		{"10.1.0.9", "a host with one address is one", "alone", ""},
		{"b", "a name is a host's own, whatever others are reached at", "b", ""},
	} {
		t.Run(tc.selector, func(t *testing.T) { checkSelector(t, c, tc.selector, tc.reason, tc.want, tc.err) })
	}
}

func TestChoices_SplitByCluster(t *testing.T) {
	for selector, want := range map[string][]Choice{
		"w1":                          {{"", "w1"}},
		"w1, w2":                      {{"", "w1,w2"}},
		"prod@w1,w2":                  {{"prod", "w1,w2"}},
		"w1,prod@role=worker,w2":      {{"", "w1"}, {"prod", "role=worker,w2"}},
		"prod@all,lab@cp,*@node[1:2]": {{"prod", "all"}, {"lab", "cp"}, {"*", "node[1:2]"}},
		"":                            {{"", ""}},
	} {
		if d := cmp.Diff(want, SplitByCluster(selector)); d != "" {
			t.Errorf("%q (-want +got):\n%s", selector, d)
		}
	}
}
