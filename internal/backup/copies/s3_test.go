package copies_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/backup/copies/copiestest"
	"slipway.dev/slipway/internal/node/op"
)

func openStorage(t *testing.T, s *copiestest.Storage) copies.Target {
	t.Helper()
	secret, err := copies.S3Login{AccessKey: s.AccessKey, SecretKey: s.SecretKey, Authorities: s.Authority}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	to, err := copies.Open(t.Context(), op.CopyTarget{Name: "s3", S3: &s.To}, append(secret, '\n'))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := to.Close(); err != nil {
			t.Error(err)
		}
	})
	return to
}

// Errors are in plain words and without the access keys, and nothing is left in the
// storage.
func TestS3_LeavesNothingAfterFailure(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		do           func(*copiestest.Storage, *op.CopyS3, *copies.S3Login)
		want         string
	}{
		{"as it is", "it works", func(*copiestest.Storage, *op.CopyS3, *copies.S3Login) {}, ""},
		{"no prefix", "copies lie in the bucket itself", func(_ *copiestest.Storage, to *op.CopyS3, _ *copies.S3Login) { to.Prefix = "" }, ""},
		{
			"another access key", "it is not known",
			func(s *copiestest.Storage, _ *op.CopyS3, _ *copies.S3Login) { s.AccessKey = "AKIAOTHER" }, "unknown access key",
		},
		{
			"another secret key", "it does not fit",
			func(s *copiestest.Storage, _ *op.CopyS3, _ *copies.S3Login) { s.SecretKey = "other" },
			"the secret key does not belong to the access key",
		},
		{
			"no such bucket", "it is not made",
			func(_ *copiestest.Storage, to *op.CopyS3, _ *copies.S3Login) { to.Bucket = "others" }, "bucket others at https://127.0.0.1:",
		},
		{
			"a clock", "signatures have a time",
			func(s *copiestest.Storage, _ *op.CopyS3, _ *copies.S3Login) { s.Ahead.Store(int64(time.Hour)) },
			"the clock of this host or of the storage is wrong",
		},
		{
			"another authority", "somebody may be in between",
			func(_ *copiestest.Storage, _ *op.CopyS3, l *copies.S3Login) { l.Authorities = "" }, "untrusted CA; name that CA in caFile",
		},
		{
			"no certificates", "they are looked at",
			func(_ *copiestest.Storage, _ *op.CopyS3, l *copies.S3Login) { l.Authorities = "canary" }, "has no certificate",
		},
		{"in the clear", "others would read along", func(_ *copiestest.Storage, to *op.CopyS3, _ *copies.S3Login) {
			to.Endpoint = strings.Replace(to.Endpoint, "https", "http", 1)
		}, "is not an https URL"},
		{
			"it loses something", "it is read back",
			func(s *copiestest.Storage, _ *op.CopyS3, _ *copies.S3Login) { s.Truncates.Store(true) }, "differs from the written data",
		},
		{
			"nobody there",
			"it is told", func(_ *copiestest.Storage, to *op.CopyS3, _ *copies.S3Login) { to.Endpoint = "https://127.0.0.1:1" }, "refused",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := copiestest.ListenS3(t)
			to, login := s.To, copies.S3Login{AccessKey: s.AccessKey, SecretKey: s.SecretKey, Authorities: s.Authority}
			tc.do(s, &to, &login)
			secret, err := login.Encode()
			if err != nil {
				t.Fatal(err)
			}
			target, err := copies.Open(t.Context(), op.CopyTarget{Name: "s3", S3: &to}, secret)
			if err == nil {
				_, err = copies.SendCopy(t.Context(), target, copyName("cp1", 1), nil, 3, writeContent([]byte("one")))
			}
			if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %q", tc.reason, err, tc.want)
			}
			if err != nil && (strings.Contains(strings.ToLower(err.Error()), "canary") || listFiles(t, s.Dir) != "") {
				t.Errorf("%v; there is %s", err, listFiles(t, s.Dir))
			}
		})
	}
	if _, err := copies.Open(t.Context(), op.CopyTarget{Name: "s3", S3: &op.CopyS3{}}, []byte("canary")); err == nil ||
		strings.Contains(err.Error(), "canary") {
		t.Errorf("%v", err)
	}
}

// Keys with a longer prefix or in deeper directories belong to others.
func TestS3_IgnoresKeysOfOtherPrefixes(t *testing.T) {
	s := copiestest.ListenS3(t)
	to := openStorage(t, s)
	others := []string{
		"etcd/prod-2/" + copyName("cp1", 1).String(), "etcd/prod/old/" + copyName("cp1", 1).String(),
		copyName("cp1", 1).String(), "etcd/prod-2/." + copyName("cp1", 1).String() + ".part",
	}
	root := filepath.Dir(filepath.Dir(s.Dir))
	for _, key := range others {
		file := filepath.Join(root, key)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for day := range 9 {
		if sent, err := copies.SendCopy(t.Context(), to, copyName("cp1", 10+day), nil, 5, writeContent([]byte("one"))); err != nil ||
			sent.Left != min(day+1, 5) {
			t.Fatalf("%+v, %v", sent, err)
		}
	}
	for _, key := range others {
		if _, err := os.Stat(filepath.Join(root, key)); err != nil {
			t.Errorf("%v", err)
		}
	}
	if all, err := to.List(t.Context(), ""); err != nil || len(all) != 5 {
		t.Errorf("%+v, %v", all, err)
	}
}

// SendCopy ends with its context if the storage hangs, and the upload is aborted.
func TestS3_EndsWhenStorageHangs(t *testing.T) {
	s := copiestest.ListenS3(t)
	to := openStorage(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := copies.SendCopy(ctx, to, copyName("cp1", 1), nil, 1, func(w io.Writer) error {
		cancel()
		_, err := w.Write(bytes.Repeat([]byte("x"), 40<<20))
		return err
	})
	if err == nil || listFiles(t, s.Dir) != "" {
		t.Errorf("%v; there is %s", err, listFiles(t, s.Dir))
	}
	s.Hangs.Store(true)
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := copies.SendCopy(ctx, to, copyName("cp1", 1), nil, 1, writeContent(nil)); err == nil ||
		!strings.Contains(err.Error(), "deadline") {
		t.Errorf("%v", err)
	}
}

// TestS3_ReportsEndOfContextWithEmptyResponse: a response can arrive while the context ends.
// The error then has the reason, and not only the fault of the response.
func TestS3_ReportsEndOfContextWithEmptyResponse(t *testing.T) {
	s := copiestest.ListenS3(t)
	to := openStorage(t, s)
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		s.Empty = cancel
		if _, err := to.List(ctx, ""); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want the end of the context", err)
		}
	}
}

// TestS3_AbortsUploadIfWriterFails: an upload whose writer fails is aborted, for any
// amount of data and any wrapped error.
func TestS3_AbortsUploadIfWriterFails(t *testing.T) {
	const part = 8 << 20
	short := fmt.Errorf("writing snapshot.db of the set: %w", io.ErrUnexpectedEOF)
	for _, tc := range []struct {
		name, reason string
		bytes        int
		fails        error
	}{
		{"nothing", "an upload without content is completed too", 0, short},
		{"less than a part", "the part that is not full is taken for the last one", 3, short},
		{"just one part", "the error arrives alone, after a full part", part, short},
		{"more than a part", "the second part is not full", part + 3, short},
		{"the end itself", "a reader cannot tell it from the end of the content", 3, io.EOF},
		{"the end, wrapped", "it looks like the end of the content", 3, fmt.Errorf("reading the snapshot: %w", io.EOF)},
		{"the unexpected end itself", "readers of full buffers return it at the end", part + 3, io.ErrUnexpectedEOF},
		{"another error", "it is no end", part + 3, fs.ErrPermission},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := copiestest.ListenS3(t)
			to := openStorage(t, s)
			if _, err := copies.SendCopy(t.Context(), to, copyName("cp1", 1), nil, 1, writeContent([]byte("older"))); err != nil {
				t.Fatal(err)
			}
			_, err := copies.SendCopy(t.Context(), to, copyName("cp1", 2), nil, 1, func(w io.Writer) error {
				if _, err := w.Write(bytes.Repeat([]byte("x"), tc.bytes)); err != nil {
					return err
				}
				return tc.fails
			})
			if !errors.Is(err, tc.fails) {
				t.Errorf("%s: %v, want %v", tc.reason, err, tc.fails)
			}
			if n := s.Completed.Load(); n != 1 {
				t.Errorf("%s: %d uploads were completed, want that of the older copy alone", tc.reason, n)
			}
			if d := cmp.Diff(copyName("cp1", 1).String(), listFiles(t, s.Dir)); d != "" {
				t.Errorf("%s: files (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

// An endless listing is not read forever. Keys of others do not prevent a copy.
func TestS3_LimitsEndlessListing(t *testing.T) {
	s := copiestest.ListenS3(t)
	s.Endless.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := openStorage(t, s).List(ctx, ""); err == nil || !strings.Contains(err.Error(), "more than 100000 keys") {
		t.Errorf("%v", err)
	}
	if _, err := copies.SendCopy(ctx, openStorage(t, s), copyName("cp1", 1), nil, 1, writeContent(nil)); err != nil {
		t.Errorf("%v", err)
	}
}
