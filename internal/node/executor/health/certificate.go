//go:build linux

package health

import (
	"fmt"
	"time"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// CheckCertificateFile returns an error unless a file has a certificate that has not
// expired.
func CheckCertificateFile(h *host.Host, path string) error {
	st := pki.ReadState(h.ReadFile, op.CertificateFile{Path: path})
	switch {
	case st.Missing:
		return fmt.Errorf("%s is missing", path)
	case st.Problem != "":
		return fmt.Errorf("reading %s: %s", path, st.Problem)
	case time.Now().After(st.Ends):
		return fmt.Errorf("the certificate in %s expired on %s", path, st.Ends.Format(time.RFC3339))
	}
	return nil
}
