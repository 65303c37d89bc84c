package copies

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5" //nolint:gosec // each storage knows that sum
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"slipway.dev/slipway/internal/node/op"
)

const (
	// partSize is the size of a part of an upload, which is held in memory. Storage
	// accepts 10000 parts: 78 GiB, ten times the maximum size of etcd.
	partSize = 8 << 20
	maxParts = 10_000
	// maxListed limits the number of listed keys: a host keeps at most 1000 copies, and an
	// archive 100 operations of each of 500 clusters, but the storage could list keys endlessly.
	maxListed = 100_000
	// attempts is the number of attempts if the storage is busy.
	attempts = 4
)

// A S3Login has the credentials for S3 storage, in the form of the file on hosts.
type S3Login struct {
	AccessKey string `json:"accessKey"`
	SecretKey string `json:"secretKey"`
	// Authorities are CA certificates in PEM form that are trusted besides the system's.
	Authorities string `json:"authorities,omitempty"`
}

// Encode returns the login in the form for Open.
func (l S3Login) Encode() ([]byte, error) {
	return json.Marshal(l) //nolint:gosec // it goes to where secrets go
}

// A bucket is a prefix of an S3 bucket.
type bucket struct {
	s3        minio.Core
	transport *http.Transport
	to        op.CopyS3
}

// openS3 returns the target for S3 storage. It does not connect yet.
func openS3(to op.CopyS3, secret []byte) (*bucket, error) {
	var login S3Login
	if json.Unmarshal(secret, &login) != nil {
		return nil, errors.New("the saved S3 credentials are damaged") // the cause might quote them
	}
	at, err := url.Parse(to.Endpoint)
	if err != nil || at.Scheme != "https" {
		return nil, fmt.Errorf("%s is not an https URL", to.Endpoint)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if login.Authorities != "" && !roots.AppendCertsFromPEM([]byte(login.Authorities)) {
		return nil, errors.New("the file that caFile names has no certificate")
	}
	dialer := net.Dialer{Timeout: dialTime}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: dialTime, DisableCompression: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			raw, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return deadlineConn{raw}, nil
		},
	}
	lookup := minio.BucketLookupDNS
	if to.PathStyle {
		lookup = minio.BucketLookupPath
	}
	client, err := minio.New(at.Host, &minio.Options{
		Creds:  credentials.NewStaticV4(strings.TrimSpace(login.AccessKey), strings.TrimSpace(login.SecretKey), ""),
		Secure: true, Region: to.Region,
		Transport: transport, BucketLookup: lookup, MaxRetries: attempts,
	})
	if err != nil {
		return nil, err
	}
	return &bucket{minio.Core{Client: client}, transport, to}, nil
}

func (b *bucket) Close() error {
	b.transport.CloseIdleConnections()
	return nil
}

// keyPrefix returns the prefix of the keys of copies.
func (b *bucket) keyPrefix() string {
	if b.to.Prefix == "" {
		return ""
	}
	return b.to.Prefix + "/"
}

func (b *bucket) keyOf(name string) string { return b.keyPrefix() + path.Base(name) }

// List returns the files below the prefix whose names have a prefix. An incomplete upload
// is listed with the name of a part.
func (b *bucket) List(ctx context.Context, begin string) (out []File, err error) {
	ctx, cancel := context.WithCancel(ctx) // ends the listing goroutine
	defer cancel()
	listed := 0
	add := func(key string, bytes int64, modified time.Time, named func(string) string, failed error) {
		if listed++; failed != nil {
			err = cmp.Or(err, b.plainError(ctx, failed))
		} else if listed > maxListed {
			err = cmp.Or(err,
				fmt.Errorf("bucket %s at %s: more than %d keys begin with %q", b.to.Bucket, b.to.Endpoint, maxListed, b.keyPrefix()+begin))
			cancel()
		} else if name := strings.TrimPrefix(key, b.keyPrefix()); name != "" && !strings.Contains(name, "/") {
			out = append(out, File{Name: named(name), Bytes: bytes, Modified: modified.UTC()})
		}
	}
	for o := range b.s3.Client.ListObjects(ctx, b.to.Bucket, minio.ListObjectsOptions{Prefix: b.keyPrefix() + begin}) {
		add(o.Key, o.Size, o.LastModified, func(name string) string { return name }, o.Err)
	}
	if err != nil {
		return nil, err
	}
	for o := range b.s3.ListIncompleteUploads(ctx, b.to.Bucket, b.keyPrefix()+begin, false) {
		add(o.Key, o.Size, o.Initiated, partName, o.Err)
	}
	if err != nil {
		return nil, fmt.Errorf("listing incomplete uploads: %w", err)
	}
	return out, nil
}

func (b *bucket) Fetch(ctx context.Context, name string, to io.Writer) (err error) {
	body, _, _, err := b.s3.GetObject(ctx, b.to.Bucket, b.keyOf(name), minio.GetObjectOptions{})
	if err != nil {
		return b.plainError(ctx, err)
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	_, err = io.Copy(to, body)
	return err
}

// Put uploads a copy. The copy is removed again if it differs from the written data.
func (b *bucket) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	wrote, err := b.upload(ctx, name, write)
	if err != nil {
		return err
	}
	back := newCounter(io.Discard)
	if err := errors.Join(b.Fetch(ctx, name, back), wrote.compareReadBack(back)); err != nil {
		rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTime)
		defer cancel()
		return errors.Join(err, b.Remove(rest, name))
	}
	return nil
}

// upload uploads a file in parts, and returns the size and the checksum of the written data. The file
// exists when the upload is completed.
func (b *bucket) upload(ctx context.Context, name string, write func(io.Writer) error) (wrote *counter, err error) {
	from, pipe := io.Pipe()
	wrote = newCounter(pipe)
	written := make(chan error, 1)
	go func() {
		err := write(wrote)
		_ = pipe.CloseWithError(err) // never fails
		written <- err
	}()
	// A failed upload is removed even if ctx has ended.
	defer func() {
		if err != nil {
			rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTime)
			defer cancel()
			_ = b.Remove(rest, partName(name)) // the next copy tries again
		}
	}()
	id, parts, err := b.uploadParts(ctx, b.keyOf(name), from)
	_ = from.CloseWithError(cmp.Or(err, io.ErrClosedPipe)) // the writer gets this error
	// A writer's error may look like the end of the content, so it is taken before the
	// upload is completed.
	if failed := <-written; err != nil || failed != nil {
		return nil, cmp.Or(uploadCause(failed, err), b.plainError(ctx, err))
	}
	if _, err := b.s3.CompleteMultipartUpload(ctx, b.to.Bucket, b.keyOf(name), id, parts, uploadOptions); err != nil {
		return nil, b.plainError(ctx, err)
	}
	return wrote, nil
}

// Objects are the files of S3 storage for a caller that verifies them. Unlike a Target, Put does not read
// a file back, and never removes a file that exists: another process may have verified it.
type Objects struct{ to *bucket }

// OpenObjects returns the files of S3 storage. It does not connect yet.
func OpenObjects(to op.CopyS3, login S3Login) (Objects, error) {
	secret, err := login.Encode()
	if err != nil {
		return Objects{}, err
	}
	b, err := openS3(to, secret)
	return Objects{b}, err
}

// Put writes a file atomically.
func (o Objects) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	_, err := o.to.upload(ctx, name, write)
	return err
}

// List returns the files whose names have a prefix, including incomplete ones.
func (o Objects) List(ctx context.Context, begin string) ([]File, error) {
	return o.to.List(ctx, begin)
}

// Fetch writes a file's content.
func (o Objects) Fetch(ctx context.Context, name string, to io.Writer) error {
	return o.to.Fetch(ctx, name, to)
}

// Remove removes a file. A missing file is not an error.
func (o Objects) Remove(ctx context.Context, name string) error { return o.to.Remove(ctx, name) }

// Close closes the connections.
func (o Objects) Close() error { return o.to.Close() }

// uploadOptions are the options of each upload.
var uploadOptions = minio.PutObjectOptions{ContentType: "application/octet-stream", SendContentMd5: true}

// uploadParts sends the data of from in parts, and returns the upload's id and parts. It does
// not complete the upload. It does not use the library's loops for other kinds of uploads,
// to keep the node helper small.
func (b *bucket) uploadParts(ctx context.Context, key string, from io.Reader) (id string, parts []minio.CompletePart, err error) {
	id, err = b.s3.NewMultipartUpload(ctx, b.to.Bucket, key, uploadOptions)
	if err != nil {
		return "", nil, err
	}
	buf := make([]byte, partSize)
	for {
		n, err := io.ReadFull(from, buf)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return "", nil, err
		}
		if n == 0 && len(parts) > 0 {
			return id, parts, nil
		}
		if len(parts) == maxParts {
			return "", nil, fmt.Errorf("the copy is larger than %d bytes", int64(maxBytes))
		}
		sum := md5.Sum(buf[:n]) //nolint:gosec // each storage knows that sum
		part, err := b.s3.PutObjectPart(ctx, b.to.Bucket, key, id, len(parts)+1, bytes.NewReader(buf[:n]), int64(n),
			minio.PutObjectPartOptions{Md5Base64: base64.StdEncoding.EncodeToString(sum[:])})
		if err != nil {
			return "", nil, err
		}
		parts = append(parts, minio.CompletePart{PartNumber: part.PartNumber, ETag: part.ETag})
		if last {
			return id, parts, nil
		}
	}
}

// uploadCause returns the write error, unless the failed upload caused it.
func uploadCause(written, sent error) error {
	if errors.Is(written, sent) {
		return nil
	}
	return written
}

// Remove removes a key. For the name of a part, it removes the incomplete upload.
func (b *bucket) Remove(ctx context.Context, name string) error {
	if whole, ok := strings.CutSuffix(name, ".part"); ok {
		return b.plainError(ctx, b.s3.RemoveIncompleteUpload(ctx, b.to.Bucket, b.keyOf(strings.TrimPrefix(whole, "."))))
	}
	return b.plainError(ctx, b.s3.RemoveObject(ctx, b.to.Bucket, b.keyOf(name), minio.RemoveObjectOptions{}))
}

// plainError replaces an error code of the storage with a plain message. If the context has
// ended, the error also has the reason: the storage may have sent an empty response at that
// moment, whose own error explains nothing.
func (b *bucket) plainError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("bucket %s at %s: %w: %w", b.to.Bucket, b.to.Endpoint, ended, err)
	}
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return fmt.Errorf("%s has a certificate of an untrusted CA; name that CA in caFile: %w", b.to.Endpoint, unknown)
	}
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) {
		return err
	}
	say, ok := answers[answer.Code]
	if !ok {
		return fmt.Errorf("bucket %s at %s: %w", b.to.Bucket, b.to.Endpoint, err)
	}
	return fmt.Errorf("bucket %s at %s: %s (%s)", b.to.Bucket, b.to.Endpoint, say, answer.Code)
}

// answers are the messages for the most common codes.
var answers = map[string]string{
	minio.NoSuchBucket:             "the bucket does not exist",
	minio.NoSuchKey:                "the file does not exist",
	minio.AccessDenied:             "the access key does not have this permission",
	"InvalidAccessKeyId":           "unknown access key",
	"SignatureDoesNotMatch":        "the secret key does not belong to the access key",
	"RequestTimeTooSkewed":         "the clock of this host or of the storage is wrong",
	"AuthorizationHeaderMalformed": "the bucket is in another region, or the keys are malformed",
	"PermanentRedirect":            "the bucket has another endpoint",
	"QuotaExceeded":                "the storage is full",
	"XMinioStorageFull":            "the storage is full",
}
