//go:build e2e && long

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// The server offers S3 for a directory. It is a program of another project, and not a
// dependency of Slipway.
const (
	gateway        = "github.com/versity/versitygw/cmd/versitygw"
	gatewayVersion = "v1.8.0"
)

// These are the logins of a site's storage: of its administrator, and of the hosts of a
// cluster.
const (
	keeperName, keeperWord = "keeper", "word-of-the-keeper-90aa41"
	copierName, copierWord = "copier", "word-of-the-copier-17bd02"
	bucket, below          = "backups", "etcd/prod"
)

// copierMay is the policy for the hosts of a cluster, exactly as the guide asks for.
const copierMay = `{"Version": "2012-10-17", "Statement": [
	{"Effect": "Allow", "Principal": {"AWS": ["` + copierName +
	`"]}, "Action": ["s3:ListBucket", "s3:ListBucketMultipartUploads"], "Resource": ["arn:aws:s3:::` + bucket + `"]},
	{"Effect": "Allow", "Principal": {"AWS": ["` + copierName +
	`"]}, "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"], "Resource": ["arn:aws:s3:::` + bucket +
	`/` + below + `/*"]}
]}`

// storage is a bucket on a machine, with the access of its administrator.
type storage struct {
	minio.Core
	// spec is its configuration in a cluster file, and files has the contents of the files
	// that spec names.
	spec                       map[string]any
	caFile, accessKey, wordKey string
}

// gatewayProgram is the server's program, which is compiled once.
func gatewayProgram(t *testing.T) string {
	t.Helper()
	tools := filepath.Join(cacheDir(), "tools")
	dir := filepath.Join(tools, "versitygw-"+gatewayVersion)
	program := filepath.Join(dir, "versitygw")
	if _, err := os.Stat(program); err == nil {
		return program
	}
	if err := os.MkdirAll(tools, 0o755); err != nil {
		t.Fatal(err)
	}
	scratch, err := os.MkdirTemp(tools, ".new-*")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(scratch)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "install", "-trimpath", "-ldflags=-s -w", gateway+"@"+gatewayVersion)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOBIN="+scratch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Rename(scratch, dir); err != nil && !errors.Is(err, os.ErrExist) { // another run was first
		t.Fatal(err)
	}
	return program
}

// serveStorage serves a bucket on a machine, over TLS with a certificate of a separate CA.
func (u *user) serveStorage(t *testing.T, machine string) *storage {
	t.Helper()
	address := u.listMachines(t)[machine].Address
	pki := u.foreignPKI(t, address)
	u.mustExec(t, machine, "mkdir", "-p", "/opt/storage", "/srv/storage/data", "/srv/storage/users")
	u.copyTo(t, machine, gatewayProgram(t), "/opt/storage/versitygw")
	for _, f := range []string{"server.crt", "server.key"} {
		u.copyTo(t, machine, filepath.Join(pki, f), "/opt/storage/"+f)
	}
	u.mustExec(t, machine, "sh", "-c", `cat >/etc/systemd/system/storage.service <<END
[Service]
Environment=ROOT_ACCESS_KEY=`+keeperName+` ROOT_SECRET_KEY=`+keeperWord+`
ExecStart=/opt/storage/versitygw --port :9000 --cert /opt/storage/server.crt --key /opt/storage/server.key --iam-dir `+
		`/srv/storage/users posix /srv/storage/data
END
systemctl daemon-reload && systemctl start storage`)
	s := &storage{caFile: filepath.Join(pki, "ca.crt"), accessKey: filepath.Join(pki, "access"), wordKey: filepath.Join(pki, "word")}
	writeFile(t, s.accessKey, copierName+"\n")
	writeFile(t, s.wordKey, copierWord+"\n")
	s.spec = map[string]any{
		"endpoint": "https://" + address + ":9000", "bucket": bucket, "prefix": below, "caFile": s.caFile,
		"accessKeyFrom": map[string]any{"file": s.accessKey}, "secretKeyFrom": map[string]any{"file": s.wordKey},
	}
	s.Client = storageClient(t, address+":9000", s.caFile)
	eventually(t, time.Minute, "storage to answer", func() error {
		_, err := s.BucketExists(t.Context(), bucket)
		return err
	})
	u.mustExec(t, machine, "/opt/storage/versitygw", "admin", "--access", keeperName, "--secret", keeperWord,
		"--endpoint-url", "https://127.0.0.1:9000", "--allow-insecure",
		"create-user", "--access", copierName, "--secret", copierWord, "--role", "user")
	if err := s.MakeBucket(t.Context(), bucket, minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.SetBucketPolicy(t.Context(), bucket, copierMay); err != nil {
		t.Fatal(err)
	}
	return s
}

// storageClient returns a client with the administrator's login.
func storageClient(t *testing.T, at, caFile string) *minio.Client {
	t.Helper()
	authority, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	client, err := minio.New(at, &minio.Options{
		Creds: credentials.NewStaticV4(keeperName, keeperWord, ""), Secure: true, Region: "us-east-1", BucketLookup: minio.BucketLookupPath,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// putObject puts an object there.
func (s *storage) putObject(t *testing.T, key, text string) {
	t.Helper()
	if _, err := s.Client.PutObject(t.Context(), bucket, key, bytes.NewReader([]byte(text)), int64(len(text)),
		minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
}

// beginUpload begins an upload and leaves it.
func (s *storage) beginUpload(t *testing.T, key string) {
	t.Helper()
	if _, err := s.NewMultipartUpload(t.Context(), bucket, key, minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
}

// listKeys returns the keys of all objects with their sizes, and of uploads that have not
// ended.
func (s *storage) listKeys(t *testing.T) (objects map[string]int64, uploads []string) {
	t.Helper()
	objects = map[string]int64{}
	for o := range s.Client.ListObjects(t.Context(), bucket, minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		objects[o.Key] = o.Size
	}
	for o := range s.ListIncompleteUploads(t.Context(), bucket, "", true) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		uploads = append(uploads, o.Key)
	}
	slices.Sort(uploads)
	return objects, uploads
}

// checkKeys wants these objects and uploads there, and no others.
func (s *storage) checkKeys(t *testing.T, objects, uploads []string) error {
	t.Helper()
	all, left := s.listKeys(t)
	if is := slices.Sorted(maps.Keys(all)); !slices.Equal(is, slices.Sorted(slices.Values(objects))) || !slices.Equal(left, uploads) {
		return fmt.Errorf("there is %v, and %v was begun; want %v and %v", is, left, objects, uploads)
	}
	return nil
}
