package serverbackup

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/server/privatefile"
)

// A Snapshotter takes snapshots of the etcd database.
type Snapshotter interface {
	Snapshot(ctx context.Context, to io.Writer) (SnapshotInfo, error)
}

// A Directory is the data directory of a server.
type Directory interface {
	// Path returns a path in the directory.
	Path(parts ...string) string
	ServerID() string
	// Created returns when the server was created.
	Created() time.Time
}

// Options configures a Maker.
type Options struct {
	Dir Directory
	// Snapshots is nil if etcd is external: its owner backs it up, and sets have keys only.
	Snapshots Snapshotter
	Signer    *backup.SigningKey
	// Program is the version of slipwayd, Kubernetes the version of its libraries.
	Program, Kubernetes string
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Log receives results of scheduled backups; nil discards them.
	Log *slog.Logger
}

// A Maker makes backup sets of a running server, one at a time.
type Maker struct {
	o       Options
	busy    chan struct{} // has a value while a set is being made
	sending chan struct{} // has a value for each set that is made for a client, until it is sent
}

// New returns a Maker.
func New(o Options) *Maker {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Maker{o: o, busy: make(chan struct{}, 1), sending: make(chan struct{}, maxSending)}
}

// PublicKey returns the key that verifies the sets.
func (m *Maker) PublicKey() backup.PublicKey { return m.o.Signer.PublicKey() }

// Take writes a set to a stream, encrypted for the recipients if there are any. It waits for
// another set that is being made. Nothing is written before the snapshot is complete.
func (m *Maker) Take(ctx context.Context, to io.Writer, recipients []age.Recipient) (*Header, error) {
	select {
	case m.busy <- struct{}{}:
		defer m.release()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	d, err := m.draftSet(ctx)
	if err != nil {
		return nil, err
	}
	defer d.discard()
	return d.header, explainRoom(d.writeSet(ctx, to, recipients))
}

// tryAcquire reports whether no other set is being made. The caller calls release then.
func (m *Maker) tryAcquire() bool {
	select {
	case m.busy <- struct{}{}:
		return true
	default:
		return false
	}
}

func (m *Maker) release() { <-m.busy }

// A draft is a set that was not written yet.
type draft struct {
	header   *Header
	files    []backup.Content
	snapshot *os.File // without a name; nil without a snapshot
	signer   *backup.SigningKey
}

func (d *draft) discard() {
	if d.snapshot != nil {
		_ = d.snapshot.Close() // it has no name: nothing remains
	}
}

// attempts is the number of snapshots that are tried while keys change.
const attempts = 3

// draftSet takes a snapshot and reads the keys. The keys must be the same before and after
// the snapshot: Secrets in it are encrypted with the keys of that time.
func (m *Maker) draftSet(ctx context.Context) (*draft, error) {
	for range attempts {
		d, err := m.draftOnce(ctx)
		if err != nil {
			return nil, explainRoom(err)
		}
		after, err := readKeyFiles(m.o.Dir.Path())
		if err != nil {
			d.discard()
			return nil, err
		}
		if slices.EqualFunc(d.files, after, isSameContent) {
			return d, nil
		}
		d.discard()
	}
	return nil, diag.Refuse(idChangedKeys, fmt.Sprintf("the keys of the server changed during each of %d snapshots", attempts),
		"wait for the rotation of keys to end, and try again")
}

func isSameContent(a, b backup.Content) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) }

func (m *Maker) draftOnce(ctx context.Context) (*draft, error) {
	files, err := readKeyFiles(m.o.Dir.Path())
	if err != nil {
		return nil, err
	}
	d := &draft{signer: m.o.Signer, files: files}
	d.header = &Header{
		Kind: kind, Format: format, Signed: d.signer != nil, ServerID: m.o.Dir.ServerID(), Created: m.o.Dir.Created(),
		Taken: m.o.Now().UTC().Truncate(time.Second), Program: m.o.Program, Kubernetes: m.o.Kubernetes,
	}
	if m.o.Snapshots != nil {
		d.snapshot, d.header.Snapshot, err = m.takeSnapshot(ctx)
	}
	return d, err
}

// takeSnapshot writes a snapshot to a file without a name, so that nothing remains if the
// program is killed.
func (m *Maker) takeSnapshot(ctx context.Context) (*os.File, *SnapshotInfo, error) {
	tmp := m.o.Dir.Path("tmp")
	f, err := os.CreateTemp(tmp, backup.Parts) // 0600
	if err != nil {
		return nil, nil, fmt.Errorf("creating a file for the snapshot: %w", err)
	}
	var info SnapshotInfo
	if err = os.Remove(f.Name()); err == nil {
		info, err = m.o.Snapshots.Snapshot(ctx, &roomWriter{to: f, dir: tmp})
	}
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, &info, nil
}

// writeSet writes the set.
func (d *draft) writeSet(ctx context.Context, to io.Writer, recipients []age.Recipient) error {
	h, members := d.header, []backup.Member(nil)
	for _, c := range d.files {
		members = append(members, backup.NewMember(c.Name, c.Data))
	}
	if d.snapshot != nil {
		if _, err := d.snapshot.Seek(0, io.SeekStart); err != nil {
			return err
		}
		members = append(members, backup.Member{
			File:    backup.File{Name: snapshotName, Bytes: h.Snapshot.Bytes, SHA256: h.Snapshot.SHA256},
			Content: contextReader{ctx.Err, d.snapshot},
		})
	}
	h.Files = nil
	for _, m := range members {
		h.Files = append(h.Files, m.File)
	}
	head, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return err
	}
	h.Signature, err = setForm().WriteSet(to, head, h.Taken, members, backup.Keys{Recipients: recipients, Signer: d.signer})
	if err != nil {
		return fmt.Errorf("writing the backup set: %w", err)
	}
	return nil
}

// contextReader returns an error when its context has ended.
type contextReader struct {
	ended func() error
	from  io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ended(); err != nil {
		return 0, err
	}
	return r.from.Read(p)
}

// readKeyFiles returns the files of pki and keys in a data directory, in order. Files whose
// names begin with a dot are not finished, and are left out.
func readKeyFiles(dataDir string) (out []backup.Content, err error) {
	for _, dir := range []string{keysDir, pkiDir} {
		entries, err := os.ReadDir(filepath.Join(dataDir, dir))
		if err != nil {
			return nil, fmt.Errorf("listing the files for the backup: %w", err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				continue
			}
			name, at := path.Join(dir, e.Name()), filepath.Join(dataDir, dir, e.Name())
			if !keyFile.MatchString(name) || !e.Type().IsRegular() {
				return nil, refuseFile(at, "is not a key or a certificate of the server")
			}
			data, err := privatefile.Read(at, privatefile.Public)
			if err != nil {
				return nil, fmt.Errorf("reading a file for the backup: %w", err)
			}
			out = append(out, backup.Content{Name: name, Data: data})
		}
	}
	if len(out) > maxFiles {
		return nil, refuseFile(filepath.Join(dataDir, keysDir), "and %s have %d files, but a backup has at most %d", pkiDir, len(out), maxFiles)
	}
	if !slices.ContainsFunc(out, func(c backup.Content) bool { return path.Dir(c.Name) == keysDir }) {
		return nil, errors.New("the data directory has no keys")
	}
	return out, nil
}
