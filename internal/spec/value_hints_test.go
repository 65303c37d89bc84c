package spec

import (
	"errors"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/diag"
)

// hintedCluster is a description with a place for a field of a host and of the spec.
func hintedCluster(host, field string) string {
	return "apiVersion: slipway.dev/v1alpha1\nkind: Cluster\nmetadata: {name: prod}\nspec:\n" +
		"  hosts:\n  - {name: cp-1, address: 192.0.2.1, roles: [control-plane]}\n" + host + "\n" + field + "\n"
}

func TestLoad_SaysHowToWriteValue(t *testing.T) {
	for _, tc := range []struct {
		name, host, field string
		id, message, hint string
		line              int
	}{
		{
			"large number", "", "  ssh: {port: 99999999999999999999}", "wrong-type",
			"found the number 99999999999999999999, which is too large, expected a whole number", "write a smaller number", 8,
		},
		{"number in quotes", "", `  ssh: {port: "22"}`, "wrong-type", `found text ("22"), expected a whole number`, "remove the quotes: 22", 8},
		{
			"address with zeros", "  - {name: w-1, address: 10.77.200.02}", "", "invalid-address", `"10.77.200.02" is neither`,
			"write 10.77.200.2: the numbers of an IPv4 address have no leading zeros", 7,
		},
		{
			"part of an address", "  - {name: w-1, address: 10.77.200}", "", "invalid-address", `"10.77.200" is neither`,
			"write four numbers from 0 to 255 for an IPv4 address", 7,
		},
		{
			"NUL", "", "  ssh: {user: \"a\x00\"}", "yaml-syntax", "the byte 0x00 at this place is not allowed",
			"remove the byte, or save the file as text in UTF-8", 8,
		},
		{
			"not UTF-8", "  - {name: w-1\xff}", "", "yaml-syntax", "the byte 0xff at this place is not allowed",
			"remove the byte, or save the file as text in UTF-8", 7,
		},
		{
			"pods limit", "", "  kubernetes: {kubelet: {config: {podPidsLimit: -5}}}", "wrong-type",
			`found a number ("-5"), expected a number of at least -1`, "", 8,
		},
		{
			"static pods", "", "  kubernetes: {kubelet: {config: {staticPodPath: /srv/pods}}}", "conflicting-fields",
			"would not start them", "put your own static pods into /etc/kubernetes/manifests", 8,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := loader.Load("cluster.yaml", []byte(hintedCluster(tc.host, tc.field)))
			var list diag.List
			if !errors.As(err, &list) {
				t.Fatalf("error %v", err)
			}
			for _, d := range list {
				if d.ID == tc.id && strings.Contains(d.Message, tc.message) && strings.Contains(d.Hint, tc.hint) && d.Line == tc.line && d.Column > 0 {
					return
				}
			}
			t.Errorf("want %s at line %d: %s (%s), got:\n%v", tc.id, tc.line, tc.message, tc.hint, err)
		})
	}
}
