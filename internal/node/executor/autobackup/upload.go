//go:build linux

package autobackup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// ListBackupCopiesOp executes op.ListBackupCopies.
type ListBackupCopiesOp struct{ Op op.ListBackupCopies }

func (x *ListBackupCopiesOp) Paths() []string {
	return []string{x.Op.Target()}
}

// maxSetFile limits a file in a set, in bytes.
const maxSetFile = 4 << 20

// copyAll copies a snapshot to all targets concurrently, so that a hanging target does
// not delay the others. told is called for each target at its start, whose record remains
// if its end never comes, and at its end.
func (a AutoBackup) copyAll(ctx context.Context, k op.KeptSnapshot, before []op.CopyOutcome, told func(op.CopyOutcome) error) error {
	if a.Job.Copies == nil {
		return nil
	}
	limit := op.AutoCopyTime
	if n := a.Job.Copies.WithinSeconds; n > 0 {
		limit = time.Duration(n) * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var failed error
	for _, to := range a.Job.Copies.To {
		failed = errors.Join(failed, told(StartedCopies(keptOutcome(before, to.Name))))
	}
	set, err := a.readCopySet(k)
	ended := make(chan op.CopyOutcome)
	var all sync.WaitGroup
	for _, to := range a.Job.Copies.To {
		all.Go(func() {
			var sent copies.Sent
			problem := err
			if problem == nil {
				sent, problem = FitsWithin(ctx, func() (copies.Sent, error) { return set.sendTo(ctx, a, to) })
			}
			ended <- judgeCopy(keptOutcome(before, to.Name), sent, problem, k.Taken)
		})
	}
	go func() {
		all.Wait()
		close(ended)
	}()
	for out := range ended {
		failed = errors.Join(failed, told(out))
	}
	return failed
}

// FitsWithin waits for a copy until its time is over. A stalled file system ignores that:
// work on it continues until the process ends.
func FitsWithin(ctx context.Context, send func() (copies.Sent, error)) (copies.Sent, error) {
	type end struct {
		sent    copies.Sent
		problem error
	}
	ended := make(chan end, 1)
	go func() {
		sent, problem := send()
		ended <- end{sent, problem}
	}()
	select {
	case e := <-ended:
		return e.sent, e.problem
	case <-ctx.Done():
		return copies.Sent{}, errors.New("the copy did not finish in time: the target does not answer, or is too slow")
	}
}

// StartedCopies returns the record of a running copy: since the first time that did not
// end.
func StartedCopies(out op.CopyOutcome) op.CopyOutcome {
	if out.Begun.IsZero() {
		out.Begun = time.Now().UTC().Truncate(time.Second)
	}
	return out
}

// keepCopyOutcomes returns the earlier results for the current targets.
func (a AutoBackup) keepCopyOutcomes(before []op.CopyOutcome) (out []op.CopyOutcome) {
	if a.Job.Copies == nil {
		return nil
	}
	for _, to := range a.Job.Copies.To {
		if slices.ContainsFunc(before, func(c op.CopyOutcome) bool { return c.Target == to.Name }) {
			out = append(out, keptOutcome(before, to.Name))
		}
	}
	return out
}

// keptOutcome returns the earlier result for a target.
func keptOutcome(before []op.CopyOutcome, target string) op.CopyOutcome {
	for _, c := range before {
		if c.Target == target {
			return c
		}
	}
	return op.CopyOutcome{Target: target}
}

// judgeCopy returns the new result for a target.
func judgeCopy(out op.CopyOutcome, sent copies.Sent, problem error, taken time.Time) op.CopyOutcome {
	out.Begun = time.Time{}
	if problem == nil {
		out = op.CopyOutcome{Target: out.Target, Copied: taken, Kept: sent.Left}
		if sent.Unremoved != nil {
			out.Unremoved = host.FailureOf(sent.Unremoved).Message
		}
		return out
	}
	if out.Failed == "" {
		out.Since = time.Now().UTC().Truncate(time.Second)
	}
	out.Failed = host.FailureOf(problem).Message
	return out
}

// A copySet is the backup set of a snapshot for the targets.
type copySet struct {
	name     copies.Name
	set      backup.Set
	small    []backup.Content
	snapshot string
	keys     backup.Keys
}

// readCopySet returns a set with the data of the host. It does not have the description
// of the cluster, which is saved in etcd.
func (a AutoBackup) readCopySet(k op.KeptSnapshot) (*copySet, error) {
	c := a.Job.Copies
	to, err := backup.ParseRecipients(c.Recipients)
	if err != nil || len(to) == 0 {
		return nil, errors.Join(err, host.Invalid("copies must be encrypted before they leave the host, and no recipient is set"))
	}
	ca, err := a.readSmallFile(c.Authority)
	if err != nil {
		return nil, fmt.Errorf("the CA of the cluster: %w", err)
	}
	cert, err := pki.ParseCertificate(ca)
	if err != nil {
		return nil, fmt.Errorf("the CA of the cluster in %s: %w", c.Authority, err)
	}
	sum := sha256.Sum256(cert.Raw)
	version, err := a.serverVersion(c.Server)
	if err != nil {
		return nil, err
	}
	signer, err := a.readSigningKey(c.SigningKey)
	if err != nil {
		return nil, err
	}
	s := &copySet{
		keys:     backup.Keys{Recipients: to, Signer: signer},
		snapshot: filepath.Join(a.snapshotDir(), filepath.Base(k.Path)), set: backup.Set{
			Cluster: a.Job.Cluster, Taken: k.Taken, Kubernetes: version, Etcd: k.Etcd, EtcdType: c.EtcdType,
			Member: c.Host, Authority: hex.EncodeToString(sum[:]),
			Snapshot: backup.Snapshot{Bytes: k.Bytes, SHA256: k.SHA256, Hash: k.Hash, Revision: k.Revision, Keys: k.Keys, Version: k.Version},
		},
	}
	s.name = copies.Name{
		Cluster: a.Job.Cluster, ID: copies.ClusterID(s.set.Authority), Host: c.Host, Taken: k.Taken,
		Revision: k.Revision,
	}.WithTag(signer)
	for _, p := range c.Files {
		data, err := a.readSmallFile(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		default:
			s.small = append(s.small, backup.Content{Name: backup.HostFile(p), Data: data})
		}
	}
	return s, nil
}

// readSigningKey returns the key that signs sets; nil if the host must not have one. A set
// without a signature is of little use for a restore, so a missing key stops the copies,
// and this is reported.
func (a AutoBackup) readSigningKey(file string) (*backup.SigningKey, error) {
	if file == "" {
		return nil, nil
	}
	text, err := atomicfile.ReadFile(a.DiskPath(file), bounded.Config)
	if err != nil {
		return nil, fmt.Errorf("reading the key that signs backup sets: %w", err)
	}
	key, err := backup.ParseSigningKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return key, nil
}

// readSmallFile reads a file for a set.
func (a AutoBackup) readSmallFile(path string) ([]byte, error) {
	return bounded.ReadFile(a.DiskPath(path), maxSetFile)
}

var serverImage = regexp.MustCompile(`(?m)^[ -]*image:\s*\S+/kube-apiserver:(v[0-9][^\s@]*)`)

// serverVersion returns the version of the host's API server.
func (a AutoBackup) serverVersion(manifest string) (string, error) {
	text, err := a.readSmallFile(manifest)
	if err != nil {
		return "", fmt.Errorf("reading the version of the API server: %w", err)
	}
	m := serverImage.FindSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("%s does not contain the version of the API server", manifest)
	}
	return string(m[1]), nil
}

// sendTo copies the set to a target.
func (s *copySet) sendTo(ctx context.Context, a AutoBackup, to op.CopyTarget) (sent copies.Sent, err error) {
	target, err := a.openTarget(ctx, to, s.totalBytes())
	if err != nil {
		return sent, err
	}
	// Each target has a separate set: Stream fills it in.
	set := s.set
	var by copies.Tagger
	if s.keys.Signer != nil {
		by = s.keys.Signer
	}
	sent, err = copies.SendCopy(ctx, target, s.name, by, to.Keep, func(w io.Writer) error {
		return backup.WriteStream(w, &set, s.small, s.snapshot, s.keys)
	})
	return sent, errors.Join(err, target.Close())
}

// totalBytes returns the size of the set before encryption.
func (s *copySet) totalBytes() int64 {
	n := s.set.Snapshot.Bytes
	for _, c := range s.small {
		n += int64(len(c.Data))
	}
	return n
}

// openTarget connects to a target, for a set of this size.
func (a AutoBackup) openTarget(ctx context.Context, to op.CopyTarget, bytes int64) (copies.Target, error) {
	if to.Directory != "" {
		return a.openDirectory(to.Directory, bytes)
	}
	secret, err := atomicfile.ReadFile(a.DiskPath(to.SecretFile), bounded.Config)
	if err != nil {
		return nil, fmt.Errorf("reading the credentials of the target: %w", err)
	}
	return copies.Open(ctx, to, secret)
}

// openDirectory returns a directory on another disk than the host's snapshots, with room
// for a set of this size.
func (a AutoBackup) openDirectory(dir string, bytes int64) (copies.Target, error) {
	target, err := copies.OpenDirectory(a.DiskPath(dir))
	if err != nil {
		return nil, err
	}
	var here, root, there unix.Stat_t
	var system unix.Statfs_t
	if err := errors.Join(unix.Stat(a.snapshotDir(), &here), unix.Stat(a.DiskPath("/"), &root), unix.Stat(a.DiskPath(dir), &there),
		unix.Statfs(a.DiskPath(dir), &system)); err != nil {
		return nil, err
	}
	if why := unfitReason(there.Dev, here.Dev, root.Dev, host.FsName(system.Type)); why != "" {
		return nil, fmt.Errorf("%s is %s: its file system is not mounted", dir, why)
	}
	return limitedWriter{target, a.DiskPath(dir), bytes}, nil
}

// unfitReason returns why a directory is not on another disk, from its device, the
// devices of the snapshots and of the root directory, and its file system: if the
// expected file system is not mounted, copies would fill the disk whose failure they must
// survive, or memory.
func unfitReason(there, snapshots, root uint64, system string) string {
	switch {
	case there == snapshots:
		return "on the same disk as the snapshots"
	case there == root:
		return "on the same disk as the root directory"
	case system == "tmpfs", system == "ramfs":
		return "in memory (" + system + ")"
	}
	return ""
}

// limitedWriter is a directory to which a set is written only if it fits completely.
type limitedWriter struct {
	copies.Target
	path  string
	bytes int64
}

func (r limitedWriter) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if err := host.RoomOn(r.path, r.bytes); err != nil {
		return err
	}
	return r.Target.Put(ctx, name, write)
}

// Check lists the files in a directory.
func (x *ListBackupCopiesOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	dir, err := copies.OpenDirectory(h.DiskPath(o.Directory))
	if err != nil {
		return host.CheckResult{}, err
	}
	files, err := dir.List(ctx, "")
	if err != nil {
		return host.CheckResult{}, err
	}
	text, err := json.Marshal(files)
	return host.CheckResult{Output: text}, err
}

// withOutcome records the result for a target.
func withOutcome(all []op.CopyOutcome, c op.CopyOutcome) []op.CopyOutcome {
	i := slices.IndexFunc(all, func(other op.CopyOutcome) bool { return other.Target == c.Target })
	if i < 0 {
		return append(all, c)
	}
	all[i] = c
	return all
}
