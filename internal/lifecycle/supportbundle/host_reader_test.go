package supportbundle

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

// A slowHost responds to some programs only.
type slowHost struct {
	remote.Host
	remote.Worker
	// runs is called for each program.
	runs func(ctx context.Context, argv []string, out io.Writer) error
}

func (h slowHost) Name() string { return "w1" }

func (h slowHost) Check(context.Context, op.List) ([]op.Result, error) {
	return nil, errors.New("not tested here")
}

func (h slowHost) Run(ctx context.Context, c remote.Command, _ io.Reader, out, _ io.Writer) (int, error) {
	return 0, h.runs(ctx, c.Argv, out)
}

// readHost reads a host, and returns the archive and its tar file.
func readHost(t *testing.T, h slowHost) (d *archive, text string, took time.Duration) {
	t.Helper()
	var b bytes.Buffer
	d = &archive{
		redactor: &redactor{}, tar: tar.NewWriter(&b),
		collector: &Collector{HostTime: 2 * time.Minute, QueryTime: 15 * time.Second},
	}
	start := time.Now()
	is := &inspect.Host{Spec: v1alpha1.Host{Name: "w1"}, Conn: h}
	r := d.newHostReader(is)
	is.Err = r.readAll(t.Context())
	took = time.Since(start)
	d.reportHost(is, r.unread)
	return d, b.String(), took
}

func TestHostReader_KeepsOutputOfSlowProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, text, _ := readHost(t, slowHost{runs: func(ctx context.Context, argv []string, out io.Writer) error {
			_, err := io.WriteString(out, "first lines of "+argv[0]+"\n")
			if argv[0] == "journalctl" {
				<-ctx.Done()
				return ctx.Err()
			}
			return err
		}})
		if !strings.Contains(text, "first lines of journalctl") || !strings.Contains(text, "first lines of ss") {
			t.Errorf("output was dropped: %q", text)
		}
		missing := string(d.formatMissing())
		if !strings.Contains(missing, "hosts/w1/kubelet.log: incomplete: ") || strings.Contains(missing, "context ") {
			t.Errorf("missing.txt:\n%s", missing)
		}
		if len(d.warnings) != 1 || !strings.Contains(d.warnings[0].Message, "kubelet.log") {
			t.Errorf("warnings %v", d.warnings)
		}
	})
}

func TestHostReader_StopsAtDeadHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		d, text, took := readHost(t, slowHost{runs: func(ctx context.Context, _ []string, out io.Writer) error {
			if asked++; asked == 1 {
				_, err := io.WriteString(out, "kept line\n")
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		}})
		if asked != 1+maxStalls || took > maxStalls*15*time.Second {
			t.Errorf("%d programs in %s", asked, took)
		}
		if !strings.Contains(text, "kept line") || !strings.Contains(string(d.formatMissing()), "listeners.txt") {
			t.Errorf("%q lacks a line, or missing.txt a file:\n%s", text, d.formatMissing())
		}
		if len(d.warnings) != 1 || d.warnings[0].Host != "w1" || !strings.Contains(d.warnings[0].Message, "did not respond") {
			t.Errorf("warnings %v", d.warnings)
		}
	})
}
