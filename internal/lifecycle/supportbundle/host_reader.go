package supportbundle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

// hostCommands are the commands to run on a host: file → argv.
var hostCommands = []struct {
	file string
	argv []string
}{
	{"kubelet.log", []string{"journalctl", "-u", "kubelet", "-n", "3000", "--no-pager", "-o", "short-iso"}},
	{"containerd.log", []string{"journalctl", "-u", "containerd", "-n", "2000", "--no-pager", "-o", "short-iso"}},
	{"docker.log", []string{"journalctl", "-u", "docker", "-u", "cri-docker", "-n", "2000", "--no-pager", "-o", "short-iso"}},
	{"etcd.log", []string{"journalctl", "-u", "etcd", "-n", "2000", "--no-pager", "-o", "short-iso"}},
	{"slipway-units.log", []string{"journalctl", "-u", "slipway-*", "-n", "1000", "--no-pager", "-o", "short-iso"}},
	{"kernel.log", []string{"journalctl", "-k", "-n", "500", "--no-pager", "-o", "short-iso"}},
	{"units-failed.txt", []string{"systemctl", "list-units", "--failed", "--no-pager", "--plain"}},
	{"containers.txt", []string{"crictl", "ps", "-a"}}, // it finds the socket in its own configuration
	{"disks.txt", []string{"df", "-h"}},
	{"memory.txt", []string{"free", "-m"}},
	{"processes.txt", []string{"ps", "-eo", "pid,ppid,user,stat,etime,rss,comm"}},
	{"addresses.txt", []string{"ip", "address"}},
	{"routes.txt", []string{"ip", "route"}},
	{"listeners.txt", []string{"ss", "-lntup"}},
}

// maxStalls is the number of successive queries without a response after which a host is not
// queried further: a dead host must not delay the bundle.
const maxStalls = 2

// A hostReader adds the data of one host to a bundle.
type hostReader struct {
	*archive
	host *inspect.Host
	dir  string
	// stalls is the number of latest queries without a response.
	stalls int
	// unread are the files that the bundle lacks, or that are incomplete, because the host
	// did not respond in time.
	unread []string
}

func (d *archive) newHostReader(h *inspect.Host) *hostReader {
	return &hostReader{archive: d, host: h, dir: "hosts/" + h.Spec.Name + "/"}
}

// readAll adds all data of the host. It returns the reason if the host does not respond.
func (r *hostReader) readAll(ctx context.Context) error {
	if facts := r.read(ctx, "facts.json", r.readFacts); len(facts) > 0 {
		r.addFile(r.dir+"facts.json", r.redactor.redactJSON(facts, "  "))
	}
	if worker, ok := r.host.Conn.(remote.Worker); ok {
		for _, c := range hostCommands {
			out := r.read(ctx, c.file, func(ctx context.Context) ([]byte, error) { return runCommand(ctx, worker, c.argv...) })
			if out != nil {
				r.addText(r.dir+c.file, out)
			}
		}
		r.addPodLogs(ctx)
	}
	switch {
	case len(r.unread) > 0 && ctx.Err() != nil:
		return ctx.Err()
	case r.stalls >= maxStalls:
		return hostconn.Unresponsive(r.host.Spec.Name, r.collector.QueryTime)
	}
	return nil
}

// read returns the result of a query, also an incomplete one, nil without any. It notes the file as missing
// if there was an error, and as unread if the host did not respond in time.
func (r *hostReader) read(ctx context.Context, file string, query func(context.Context) ([]byte, error)) []byte {
	if r.stalls >= maxStalls || ctx.Err() != nil {
		r.unread = append(r.unread, file)
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, r.collector.QueryTime)
	defer cancel()
	out, err := query(limited)
	switch {
	case err == nil:
		r.stalls = 0
		return append([]byte{}, out...)
	case limited.Err() == nil: // the host did respond
		r.stalls = 0
		r.addMissing(r.dir+file, err)
	case len(out) > 0: // so does a slow program
		r.stalls = 0
		r.unread = append(r.unread, file)
		r.addMissing(r.dir+file, errors.New("incomplete: the program did not end within the time limit"))
	default:
		r.stalls++
		r.unread = append(r.unread, file)
		r.addMissing(r.dir+file, err)
	}
	return out
}

func (r *hostReader) readFacts(ctx context.Context) ([]byte, error) {
	return hostconn.Query(ctx, r.host.Conn, op.Facts{})
}

// addPodLogs adds the logs of the cluster's own pods, newest first.
func (r *hostReader) addPodLogs(ctx context.Context) {
	var names []string
	r.read(ctx, "pods", func(ctx context.Context) ([]byte, error) {
		list, err := hostconn.Query(ctx, r.host.Conn, op.PodLogs{Most: maxPodLogs})
		if err == nil {
			err = json.Unmarshal(list, &names)
		}
		return nil, err
	})
	for _, name := range names[:min(len(names), maxPodLogs)] {
		if !op.IsPodLog(name) {
			continue // the kubelet does not create such a name
		}
		out := r.read(ctx, "pods/"+name, func(ctx context.Context) ([]byte, error) {
			return hostconn.Query(ctx, r.host.Conn, op.PodLog{Name: name, Bytes: maxPodLogBytes})
		})
		if len(out) >= maxPodLogBytes {
			out = dropFirstLine(out)
		}
		if out != nil {
			r.addText(r.dir+"pods/"+name, out)
		}
	}
}

// dropFirstLine returns the text after its first line, whose beginning is missing: a secret
// in it could not be recognized.
func dropFirstLine(b []byte) []byte {
	_, rest, _ := bytes.Cut(b, []byte("\n"))
	return rest
}

// runCommand returns the end of a program's output on a host, also if there is an error.
func runCommand(ctx context.Context, w remote.Worker, argv ...string) ([]byte, error) {
	var out, errw bytes.Buffer
	kept := &tailBuffer{Buffer: &out}
	code, err := w.Run(ctx, remote.Command{Argv: argv}, nil, kept, &tailBuffer{Buffer: &errw})
	if err == nil && code != 0 && out.Len() == 0 {
		err = fmt.Errorf("%s exited with code %d: %s", argv[0], code, strings.TrimSpace(errw.String()))
	}
	if kept.cut {
		return dropFirstLine(out.Bytes()), err
	}
	return out.Bytes(), err
}

// A tailBuffer keeps about the last maxLogBytes bytes.
type tailBuffer struct {
	*bytes.Buffer
	cut bool // earlier output was dropped
}

func (t *tailBuffer) Write(p []byte) (int, error) {
	_, _ = t.Buffer.Write(p) // never fails
	if over := t.Len() - 2*maxLogBytes; over > 0 {
		t.Next(over + maxLogBytes)
		t.cut = true
	}
	return len(p), nil
}
