package dial_test

import (
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/remote/dial"
)

func TestIsLocal_RecognizesThisMachine(t *testing.T) {
	yes := true
	tests := map[string]struct {
		reason string
		host   v1alpha1.Host
		want   bool
	}{
		"localhost": {"this machine by its name", v1alpha1.Host{Address: "localhost"}, true},
		"defaults": {
			"what defaulting fills in says nothing",
			v1alpha1.Host{Address: "127.0.0.1", SSH: v1alpha1.SSH{User: "root", Port: 22}},
			true,
		},
		"cluster's key": {
			"for the other hosts of the cluster",
			v1alpha1.Host{Address: "localhost", SSH: v1alpha1.SSH{User: "root", Port: 22, PrivateKeyFile: "~/.ssh/id"}},
			true,
		},
		"six":       {"the other loopback address", v1alpha1.Host{Address: "::1", SSH: v1alpha1.SSH{Sudo: &yes}}, true},
		"login":     {"how to log in is said", v1alpha1.Host{Address: "127.0.0.1", SSH: v1alpha1.SSH{PrivateKeyFile: "~/.ssh/id"}}, false},
		"port":      {"a forwarded port is another machine", v1alpha1.Host{Address: "localhost", SSH: v1alpha1.SSH{Port: 2222}}, false},
		"elsewhere": {"an ordinary host", v1alpha1.Host{Address: "10.0.0.1"}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := dial.IsLocal(tt.host); got != tt.want {
				t.Errorf("%s: %v", tt.reason, got)
			}
		})
	}
}
