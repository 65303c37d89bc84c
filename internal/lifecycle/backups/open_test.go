package backups

import (
	"encoding/base64"
	"testing"
	"time"

	"slipway.dev/slipway/internal/pki/pkitest"
)

// TestCAIDs_ReturnsBothCAsDuringRotation checks that during a CA rotation backup sets belong to the cluster if
// they were made with either CA.
func TestCAIDs_ReturnsBothCAsDuringRotation(t *testing.T) {
	year := 365 * 24 * time.Hour
	old := pkitest.NewAuthority(t, "kubernetes", time.Now().Add(-year), time.Now().Add(year))
	next := pkitest.NewAuthority(t, "kubernetes", time.Now().Add(-year), time.Now().Add(year))
	admin := func(text string) []byte {
		return []byte("clusters:\n- cluster:\n    certificate-authority-data: " + base64.StdEncoding.EncodeToString([]byte(text)) + "\n")
	}
	before, both := CAIDs(admin(old.Cert)), CAIDs(admin(next.Cert+old.Cert))
	if len(before) != 1 || len(both) != 2 || both[0] == both[1] || both[1] != before[0] {
		t.Errorf("%q before, and %q in between", before, both)
	}
	if none := CAIDs([]byte("clusters: []")); len(none) != 0 {
		t.Errorf("%q of nothing", none)
	}
}
