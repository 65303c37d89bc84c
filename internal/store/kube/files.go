package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/privatedir"
	"slipway.dev/slipway/internal/records"
)

// knownHostsName is the Secret with host keys.
const knownHostsName = "slipway.known-hosts"

// knownHostsFile is the name of the file with host keys.
const knownHostsFile = "known_hosts"

// maxHostKeys limits the file of host keys, in bytes.
const maxHostKeys = 32 << 20

// hostKeyInterval is how often new host keys are saved.
const hostKeyInterval = time.Second

// fileSpace is the space that files need, in bytes.
const fileSpace = 4 << 20

// files are records as files in a private directory.
type files struct {
	*connection
	dir  *privatedir.Dir
	ctx  context.Context //nolint:containedctx // of work in the background; without cancellation
	stop func()

	mu     sync.Mutex
	loaded []byte // the host keys when they were read, and saved for the last time
}

// Files returns a private directory for records. Host keys that are added to its file are saved
// within about a second, also if the process is killed later.
func (s *Store) Files(ctx context.Context) (_ records.Files, err error) {
	f := &files{connection: s.connection}
	f.loaded, err = contents{s.connection}.load(ctx, knownHostsName, nil)
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		return nil, fmt.Errorf("reading the host keys: %w", err)
	}
	if f.dir, err = privatedir.Create(fileSpace + int64(len(f.loaded))); err != nil {
		return nil, err
	}
	if err := f.dir.WriteFile(knownHostsFile, f.loaded); err != nil {
		return nil, errors.Join(fmt.Errorf("writing the host keys: %w", err), f.dir.Close())
	}
	f.watchHostKeys(context.WithoutCancel(ctx))
	return f, nil
}

// watchHostKeys saves new host keys until stop is called.
func (f *files) watchHostKeys(ctx context.Context) {
	f.ctx = ctx
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	f.stop = func() {
		cancel()
		<-ended
	}
	go func() { // ends with ctx
		defer close(ended)
		told := "" // the last error
		for waitFor(ctx, hostKeyInterval) == nil {
			err := f.saveHostKeys(ctx)
			if text := fmt.Sprint(err); err != nil && ctx.Err() == nil && text != told {
				f.Log.Warn("new host keys were not saved; Slipway tries again", "error", err)
				told = text
			}
		}
	}()
}

// saveHostKeys adds the new lines of the file to the saved ones, and removes the lines that were
// removed from the file. Other processes change the saved lines too.
func (f *files) saveHostKeys(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := f.dir.ReadFile(knownHostsFile, maxHostKeys)
	if err != nil || bytes.Equal(text, f.loaded) {
		return err
	}
	to := content{name: knownHostsName, labels: map[string]string{labelRecord: "known-hosts"}}
	err = contents{f.connection}.change(ctx, to, func(now []byte) []byte { return mergeLines(f.loaded, text, now) })
	if err == nil {
		f.loaded = text
	}
	return err
}

// mergeLines applies the changes between two texts to a third one: it removes and adds lines.
func mergeLines(before, after, to []byte) []byte {
	was, is := linesOf(before), linesOf(after)
	have := linesOf(to)
	var out bytes.Buffer
	for line := range strings.Lines(string(to)) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && (!was[line] || is[line]) {
			out.WriteString(line + "\n")
		}
	}
	for line := range strings.Lines(string(after)) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && !was[line] && !have[line] {
			have[line] = true
			out.WriteString(line + "\n")
		}
	}
	return out.Bytes()
}

func linesOf(text []byte) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		out[strings.TrimSuffix(line, "\n")] = true
	}
	return out
}

// KnownHosts returns the path of the file with host keys.
func (f *files) KnownHosts() string { return filepath.Join(f.dir.Path(), knownHostsFile) }

// Kubeconfig writes an admin kubeconfig of a cluster into a new file.
func (f *files) Kubeconfig(_ context.Context, cluster string, text []byte) (path string, release func(), err error) {
	if err := records.CheckName(cluster); err != nil {
		return "", nil, fmt.Errorf("writing a kubeconfig: %w", err)
	}
	if _, err := kubeconfig.ParseAdmin(text); err != nil {
		return "", nil, fmt.Errorf("writing a kubeconfig of cluster %s: %w", cluster, err)
	}
	return f.writeFile("kubeconfig."+cluster+"."+randomHex(6), text)
}

func (f *files) writeFile(name string, text []byte) (path string, release func(), err error) {
	if err := f.dir.WriteFile(name, text); err != nil {
		return "", nil, fmt.Errorf("writing %s: %w", name, err)
	}
	path = filepath.Join(f.dir.Path(), name)
	return path, func() { _ = os.Remove(path) }, nil // Close removes it otherwise
}

// ClusterFile writes a saved file of a cluster into a new file.
func (f *files) ClusterFile(ctx context.Context, cluster, file string) (string, error) {
	text, err := clusterFiles{f.connection}.Load(ctx, cluster, file)
	if err != nil {
		return "", err
	}
	name := cluster + "." + file + "." + randomHex(6)
	if text == nil {
		return filepath.Join(f.dir.Path(), name), nil
	}
	path, _, err := f.writeFile(name, text)
	return path, err
}

// TempDir returns the directory for large temporary files.
func (f *files) TempDir() string { return f.Config.TempDir }

// closeTime limits the last save of host keys.
const closeTime = 30 * time.Second

// Close saves new host keys and removes the directory.
func (f *files) Close() error {
	f.stop()
	ctx, cancel := context.WithTimeout(f.ctx, closeTime)
	defer cancel()
	return errors.Join(f.saveHostKeys(ctx), f.dir.Close())
}
