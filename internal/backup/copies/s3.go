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
	// partSize is how much of a copy is in memory while it goes to storage, which
	// takes 10000 parts: 78 GiB, ten times what etcd may have.
	partSize = 8 << 20
	maxParts = 10_000
	// maxListed is how many keys are listed that begin alike: a host keeps 1000 copies at
	// most, and storage may go on without end.
	maxListed = 20_000
	// attempts is how often storage is asked that says it is busy.
	attempts = 4
)

// A S3Login is what storage is used with, as hosts have it in a file.
type S3Login struct {
	AccessKey string `json:"accessKey"`
	SecretKey string `json:"secretKey"`
	// Authorities are certificates in PEM form that are trusted besides the system's.
	Authorities string `json:"authorities,omitempty"`
}

// Secret is the login as Open takes it.
func (l S3Login) Secret() ([]byte, error) {
	return json.Marshal(l) //nolint:gosec // it goes to where secrets go
}

// A bucket is a part of storage that is spoken to in the way of S3: the keys below a
// prefix.
type bucket struct {
	s3        minio.Core
	transport *http.Transport
	to        op.CopyS3
}

// storage makes ready what is asked later: nothing is sent yet.
func storage(to op.CopyS3, secret []byte) (Target, error) {
	var login S3Login
	if json.Unmarshal(secret, &login) != nil {
		return nil, errors.New("the keys cannot be used: they are not as they were written") // the cause might quote them
	}
	at, err := url.Parse(to.Endpoint)
	if err != nil || at.Scheme != "https" {
		return nil, fmt.Errorf("%s is no https URL", to.Endpoint)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if login.Authorities != "" && !roots.AppendCertsFromPEM([]byte(login.Authorities)) {
		return nil, errors.New("no certificate is among what caFile names")
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
			return impatient{raw}, nil
		},
	}
	lookup := minio.BucketLookupDNS
	if to.PathStyle {
		lookup = minio.BucketLookupPath
	}
	client, err := minio.New(at.Host, &minio.Options{
		Creds: credentials.NewStaticV4(strings.TrimSpace(login.AccessKey), strings.TrimSpace(login.SecretKey), ""), Secure: true, Region: to.Region,
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

// below is what the keys of copies begin with.
func (b *bucket) below() string {
	if b.to.Prefix == "" {
		return ""
	}
	return b.to.Prefix + "/"
}

func (b *bucket) key(name string) string { return b.below() + path.Base(name) }

// List answers what lies below the prefix and begins so; an upload that was cut off is there under
// the name of a part.
func (b *bucket) List(ctx context.Context, begin string) (out []File, err error) {
	ctx, cancel := context.WithCancel(ctx) // who lists goes on until it ends
	defer cancel()
	listed := 0
	add := func(key string, bytes int64, modified time.Time, named func(string) string, failed error) {
		if listed++; failed != nil {
			err = cmp.Or(err, b.plain(failed))
		} else if listed > maxListed {
			err = cmp.Or(err, fmt.Errorf("bucket %s at %s: there are more than %d keys that begin with %q", b.to.Bucket, b.to.Endpoint, maxListed, b.below()+begin))
			cancel()
		} else if name := strings.TrimPrefix(key, b.below()); name != "" && !strings.Contains(name, "/") {
			out = append(out, File{Name: named(name), Bytes: bytes, Modified: modified.UTC()})
		}
	}
	for o := range b.s3.Client.ListObjects(ctx, b.to.Bucket, minio.ListObjectsOptions{Prefix: b.below() + begin}) {
		add(o.Key, o.Size, o.LastModified, func(name string) string { return name }, o.Err)
	}
	if err != nil {
		return nil, err
	}
	for o := range b.s3.ListIncompleteUploads(ctx, b.to.Bucket, b.below()+begin, false) {
		add(o.Key, o.Size, o.Initiated, partOf, o.Err)
	}
	if err != nil {
		return nil, fmt.Errorf("looking for uploads that were cut off: %w", err)
	}
	return out, nil
}

func (b *bucket) Fetch(ctx context.Context, name string, to io.Writer) (err error) {
	body, _, _, err := b.s3.GetObject(ctx, b.to.Bucket, b.key(name), minio.GetObjectOptions{})
	if err != nil {
		return b.plain(err)
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	_, err = io.Copy(to, body)
	return err
}

// Put sends a copy in parts: it is there when storage has put them together, and goes
// again if it is not what was written.
func (b *bucket) Put(ctx context.Context, name string, write func(io.Writer) error) (err error) {
	from, pipe := io.Pipe()
	wrote := counting(pipe)
	written := make(chan error, 1)
	go func() {
		err := write(wrote)
		_ = pipe.CloseWithError(err) // never fails
		written <- err
	}()
	// What was given up is taken back also when our time is over.
	defer func() {
		if err != nil {
			rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTime)
			defer cancel()
			_ = b.Remove(rest, partOf(name)) // the next copy tries again
		}
	}()
	id, parts, err := b.upload(ctx, b.key(name), from)
	_ = from.CloseWithError(cmp.Or(err, io.ErrClosedPipe)) // whoever still writes gets it
	// A writer's error may look like the end of the content, so it is taken before the
	// upload is completed.
	if failed := <-written; err != nil || failed != nil {
		return cmp.Or(cause(failed, err), b.plain(err))
	}
	if _, err := b.s3.CompleteMultipartUpload(ctx, b.to.Bucket, b.key(name), id, parts, uploadOptions); err != nil {
		return b.plain(err)
	}
	back := counting(io.Discard)
	if err := errors.Join(b.Fetch(ctx, name, back), wrote.compare(back)); err != nil {
		rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTime)
		defer cancel()
		return errors.Join(err, b.Remove(rest, name))
	}
	return nil
}

// uploadOptions are the options of each upload.
var uploadOptions = minio.PutObjectOptions{ContentType: "application/octet-stream", SendContentMd5: true}

// upload sends what from has, part by part, and returns the upload's id and parts. It does
// not complete the upload. The library's own loops for all other kinds of uploads are not
// linked by this: the helper is small.
func (b *bucket) upload(ctx context.Context, key string, from io.Reader) (id string, parts []minio.CompletePart, err error) {
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
			return "", nil, fmt.Errorf("the copy has more than %d bytes", int64(maxBytes))
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

// cause is why writing failed, if it was not that storage took no more.
func cause(written, sent error) error {
	if errors.Is(written, sent) {
		return nil
	}
	return written
}

// Remove removes a key; of the name of a part, it is the upload that is given up.
func (b *bucket) Remove(ctx context.Context, name string) error {
	if whole, ok := strings.CutSuffix(name, ".part"); ok {
		return b.plain(b.s3.RemoveIncompleteUpload(ctx, b.to.Bucket, b.key(strings.TrimPrefix(whole, "."))))
	}
	return b.plain(b.s3.RemoveObject(ctx, b.to.Bucket, b.key(name), minio.RemoveObjectOptions{}))
}

// plain puts into words what storage answers with a code.
func (b *bucket) plain(err error) error {
	if err == nil {
		return nil
	}
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return fmt.Errorf("%s shows a certificate of an authority that is not trusted: name that in caFile: %w", b.to.Endpoint, unknown)
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

// answers are the codes that are met most.
var answers = map[string]string{
	minio.NoSuchBucket:             "there is no such bucket",
	minio.NoSuchKey:                "it is not there",
	minio.AccessDenied:             "the access key may not do this",
	"InvalidAccessKeyId":           "the access key is not known there",
	"SignatureDoesNotMatch":        "the secret key is not that of the access key",
	"RequestTimeTooSkewed":         "the clock here, or there, is wrong",
	"AuthorizationHeaderMalformed": "it is in another region, or the keys are malformed",
	"PermanentRedirect":            "it has another endpoint",
	"QuotaExceeded":                "it is full",
	"XMinioStorageFull":            "it is full",
}
