package copiestest

import (
	"crypto/hmac"
	"crypto/md5" //nolint:gosec // the sum that S3 has
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"slipway.dev/slipway/internal/node/op"
)

// page is the number of keys per list response.
const page = 3

// Storage is an S3 bucket over a directory: the files below Dir have the prefix, and a
// file .NAME.part is an incomplete upload.
type Storage struct {
	To op.CopyS3
	// AccessKey, SecretKey and Authority are the credentials and the CA for clients.
	AccessKey, SecretKey, Authority string
	// Dir is the directory of the files below the prefix.
	Dir string
	// Truncates makes it lose the last byte of completed uploads. Ahead is how far its
	// clock is ahead.
	Truncates atomic.Bool
	Ahead     atomic.Int64
	// Hangs makes it send no response until the client disconnects.
	Hangs atomic.Bool
	// Empty, if it is set, is called for each request, whose response is then empty.
	Empty func()
	// Endless makes lists of keys endless, except for lists of one host.
	Endless atomic.Bool
	// Completed counts the completed uploads.
	Completed atomic.Int32

	root string
}

// ListenS3 starts a storage server for the duration of a test.
func ListenS3(t *testing.T) *Storage {
	t.Helper()
	s := &Storage{AccessKey: "AKIACANARY", SecretKey: "canary/secret+key", root: t.TempDir()}
	s.Dir = filepath.Join(s.root, "etcd", "prod")
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(s)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // untrusting clients report the error
	srv.StartTLS()
	t.Cleanup(srv.Close)
	s.Authority = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
	s.To = op.CopyS3{Endpoint: srv.URL, Region: "us-east-1", Bucket: "backups", Prefix: "etcd/prod", PathStyle: true}
	return s
}

// ServeHTTP serves requests, and refuses requests without a valid signature.
func (s *Storage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if s.Hangs.Load() {
		<-r.Context().Done()
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http defines it; else an empty response may still arrive
	}
	if s.Empty != nil {
		s.Empty()
		return
	}
	code := s.refusalReason(r)
	if code == "" && err == nil {
		code, err = s.handleRequest(w, r, body)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code = "NoSuchKey"
		if _, err := os.Stat(s.Dir); err != nil {
			code = "NoSuchBucket"
		}
	case err != nil:
		code = "InternalError"
	}
	if code != "" {
		status, known := map[string]int{
			"NoSuchKey": 404, "NoSuchBucket": 404, "BadDigest": 400, "NotImplemented": 501,
			"InternalError": 400,
		}[code]
		if !known {
			status = http.StatusForbidden
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code)
	}
}

// refusalReason returns the reason why a request is refused, by signature version 4 as Amazon
// describes it.
func (s *Storage) refusalReason(r *http.Request) string {
	taken, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil || time.Since(taken).Abs()+time.Duration(s.Ahead.Load()) > 15*time.Minute {
		return "RequestTimeTooSkewed"
	}
	day := taken.Format("20060102")
	scope := day + "/" + s.To.Region + "/s3/aws4_request"
	fields := map[string]string{}
	for f := range strings.SplitSeq(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "), ",") {
		k, v, _ := strings.Cut(strings.TrimSpace(f), "=")
		fields[k] = v
	}
	if fields["Credential"] != s.AccessKey+"/"+scope {
		return "InvalidAccessKeyId"
	}
	headers := ""
	for name := range strings.SplitSeq(fields["SignedHeaders"], ";") {
		value := r.Header.Get(name)
		if name == "host" {
			value = r.Host
		}
		headers += name + ":" + strings.TrimSpace(value) + "\n"
	}
	query := strings.ReplaceAll(r.URL.Query().Encode(), "+", "%20")
	canonical := strings.Join([]string{
		r.Method, r.URL.EscapedPath(), query, headers, fields["SignedHeaders"],
		r.Header.Get("X-Amz-Content-Sha256"),
	}, "\n")
	sum := sha256.Sum256([]byte(canonical))
	key := []byte("AWS4" + s.SecretKey)
	for _, part := range []string{day, s.To.Region, "s3", "aws4_request"} {
		key = signText(key, part)
	}
	text := strings.Join([]string{"AWS4-HMAC-SHA256", r.Header.Get("X-Amz-Date"), scope, hex.EncodeToString(sum[:])}, "\n")
	if hex.EncodeToString(signText(key, text)) != fields["Signature"] {
		return "SignatureDoesNotMatch"
	}
	return ""
}

func signText(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(text)) // never fails
	return h.Sum(nil)
}

// handleRequest handles a request. It returns the error code of a request that it does not handle.
func (s *Storage) handleRequest(w http.ResponseWriter, r *http.Request, body []byte) (code string, err error) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if bucket != s.To.Bucket {
		return "NoSuchBucket", nil
	}
	q := r.URL.Query()
	file := filepath.Join(s.root, filepath.Clean("/"+key))
	part := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".part")
	switch does := r.Method; {
	case does == http.MethodGet && key == "" && q.Get("list-type") == "2":
		return "", s.sendKeys(w, q)
	case does == http.MethodGet && key == "" && q.Has("uploads"):
		return "", s.sendUploads(w, q)
	case does == http.MethodGet && key != "":
		text, err := os.ReadFile(file)
		if err == nil {
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			_, err = w.Write(text) //nolint:gosec // no browser asks
		}
		return "", err
	case does == http.MethodPost && q.Has("uploads"):
		if err := os.WriteFile(part, nil, 0o600); err != nil {
			return "", err
		}
		return "", answerXML(w, "InitiateMultipartUploadResult", "<UploadId>one</UploadId>")
	case does == http.MethodPut && q.Has("partNumber"):
		return s.addPart(w, r, part, body)
	case does == http.MethodPost && q.Get("uploadId") == "one":
		return "", s.completeUpload(w, key, file, part)
	case does == http.MethodDelete && q.Get("uploadId") == "one":
		file = part
		fallthrough
	case does == http.MethodDelete:
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		w.WriteHeader(http.StatusNoContent)
		return "", nil
	}
	return "NotImplemented", nil
}

// addPart adds a part to an upload.
func (s *Storage) addPart(w http.ResponseWriter, r *http.Request, part string, body []byte) (code string, err error) {
	sum := md5.Sum(body) //nolint:gosec // the sum that S3 has
	if r.Header.Get("Content-Md5") != base64.StdEncoding.EncodeToString(sum[:]) {
		return "BadDigest", nil
	}
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return "", err
	}
	w.Header().Set("Etag", `"`+hex.EncodeToString(sum[:])+`"`)
	_, err = f.Write(body)
	return "", errors.Join(err, f.Close())
}

func (s *Storage) completeUpload(w http.ResponseWriter, key, file, part string) error {
	s.Completed.Add(1)
	if s.Truncates.Load() {
		text, err := os.ReadFile(part)
		if err != nil {
			return err
		}
		if err := os.Truncate(part, int64(len(text)-1)); err != nil {
			return err
		}
	}
	if err := os.Rename(part, file); err != nil {
		return err
	}
	return answerXML(w, "CompleteMultipartUploadResult", "<Bucket>"+s.To.Bucket+"</Bucket><Key>"+key+"</Key><ETag>x-1</ETag>")
}

// listKeys returns the keys with a prefix, as files, or the incomplete uploads if requested.
func (s *Storage) listKeys(prefix string, uploads bool) (keys []string, files map[string]fs.FileInfo, err error) {
	files = map[string]fs.FileInfo{}
	if _, err := os.Stat(s.Dir); err != nil {
		return nil, nil, err
	}
	err = filepath.WalkDir(s.root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		key := strings.TrimPrefix(p, s.root+"/")
		whole, is := strings.CutSuffix(filepath.Base(key), ".part")
		if is {
			key = filepath.Join(filepath.Dir(key), strings.TrimPrefix(whole, "."))
		}
		if is == uploads && strings.HasPrefix(key, prefix) {
			keys, files[key] = append(keys, key), info
		}
		return nil
	})
	slices.Sort(keys)
	return keys, files, err
}

// sendKeys sends a page of keys. Keys in deeper directories are grouped by directory.
func (s *Storage) sendKeys(w http.ResponseWriter, q url.Values) error {
	keys, files, err := s.listKeys(q.Get("prefix"), false)
	if err != nil {
		return err
	}
	if s.Endless.Load() && !strings.HasSuffix(q.Get("prefix"), "_") {
		one := "<Contents><Key>" + q.Get("prefix") + "x</Key><Size>1</Size></Contents>"
		return answerXML(w, "ListBucketResult",
			"<IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>"+strings.Repeat(one, 1000))
	}
	after, _ := slices.BinarySearch(keys, q.Get("continuation-token")+"\x00")
	if q.Get("continuation-token") == "" {
		after = 0
	}
	out := ""
	end := min(after+page, len(keys))
	for _, key := range keys[after:end] {
		if below, _, further := strings.Cut(strings.TrimPrefix(key, q.Get("prefix")), "/"); further {
			out += "<CommonPrefixes><Prefix>" + q.Get("prefix") + below + "/</Prefix></CommonPrefixes>"
			continue
		}
		modified := files[key].ModTime().UTC().Format("2006-01-02T15:04:05.000Z")
		out += fmt.Sprintf("<Contents><Key>%s</Key><Size>%d</Size><LastModified>%s</LastModified></Contents>", key, files[key].Size(), modified)
	}
	if end < len(keys) {
		out += "<NextContinuationToken>" + keys[end-1] + "</NextContinuationToken>"
	}
	return answerXML(w, "ListBucketResult", fmt.Sprintf("<IsTruncated>%t</IsTruncated>%s", end < len(keys), out))
}

func (s *Storage) sendUploads(w http.ResponseWriter, q url.Values) error {
	keys, _, err := s.listKeys(q.Get("prefix"), true)
	out := "<IsTruncated>false</IsTruncated>"
	for _, key := range keys {
		out += "<Upload><Key>" + key + "</Key><UploadId>one</UploadId></Upload>"
	}
	return errors.Join(err, answerXML(w, "ListMultipartUploadsResult", out))
}

func answerXML(w http.ResponseWriter, kind, inner string) error {
	_, err := io.WriteString(w, xml.Header+"<"+kind+">"+inner+"</"+kind+">") //nolint:gosec // no browser asks
	return err
}
