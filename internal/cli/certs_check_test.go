package cli

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/inspect"
)

// certificateInspector is an inspector that can only read certificates.
type certificateInspector struct {
	inspector
	verdict inspect.CertificateVerdict
	within  time.Duration
}

func (i *certificateInspector) Certificates(
	_ context.Context, of lifecycle.Subject, within time.Duration, _ event.Sink,
) (*inspect.Certificates, error) {
	i.within = within
	return &inspect.Certificates{Name: of.Name, Verdict: i.verdict}, nil
}

func TestCertsCheck_ExitCodeFollowsTheVerdict(t *testing.T) {
	for verdict, want := range map[inspect.CertificateVerdict]int{
		inspect.CertificatesFine: exitDone, inspect.CertificatesUnknown: exitPartial,
		inspect.CertificatesExpire: exitChanges, inspect.CertificatesExpired: exitChanges,
	} {
		t.Run(string(verdict), func(t *testing.T) {
			var out bytes.Buffer
			c := newTestConsole(t, &out)
			clusters := &clusterChooser{}
			hosts := &certificateInspector{verdict: verdict}
			cmd := newCertsCheckCommand(certsCheckCommand{
				console: c, clusters: clusters, subjects: &subjectReader{clusters: clusters}, open: newOpener[inspector](hosts),
			})
			got := exitDone
			var exit *exitError
			if err := runCommand(t, cmd, "prod", "--within", "48h"); errors.As(err, &exit) {
				got = exit.code
			} else if err != nil {
				t.Fatal(err)
			}
			if got != want || hosts.within != 48*time.Hour {
				t.Errorf("exit code %d, want %d; within %s, want 48h", got, want, hosts.within)
			}
			if !bytes.HasPrefix(out.Bytes(), []byte("Certificates of prod: "+string(verdict))) {
				t.Errorf("the verdict is not first in:\n%s", out.String())
			}
		})
	}
}
