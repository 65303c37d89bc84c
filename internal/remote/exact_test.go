package remote

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestExact_KeepsEveryByte: what is run and copied is named to a host byte for byte.
func TestExact_KeepsEveryByte(t *testing.T) {
	for _, c := range []Command{{}, {Argv: []string{"cat", "/tmp/\xff"}, User: "u"}} {
		raw, err := json.Marshal(c)
		var back Command
		if err = errors.Join(err, json.Unmarshal(raw, &back)); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if diff := cmp.Diff(c, back); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
	for _, c := range []Copy{{}, {Path: "/tmp/\xff", User: "u", Send: true}, {Path: "a", Exact: true}} {
		raw, err := json.Marshal(c)
		var back Copy
		if err = errors.Join(err, json.Unmarshal(raw, &back)); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if diff := cmp.Diff(c, back); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
}
