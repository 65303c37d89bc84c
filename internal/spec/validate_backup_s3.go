package spec

import (
	"cmp"
	"net"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec/hostaddress"
)

// DefaultS3Region is the region for storage without regions.
const DefaultS3Region = "us-east-1"

// setS3Defaults sets the defaults of storage.
func setS3Defaults(b *v1alpha1.S3Copy) {
	if b == nil {
		return
	}
	setDefault(&b.Region, DefaultS3Region)
	if u, err := url.Parse(b.Endpoint); err == nil && b.PathStyle == nil {
		b.PathStyle = new(!strings.HasSuffix(strings.ToLower(u.Hostname()), ".amazonaws.com"))
	}
}

var (
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	regionName = regexp.MustCompile(`^[A-Za-z0-9-]{0,63}$`)
	keyPrefix  = regexp.MustCompile(`^[A-Za-z0-9._/-]{0,500}$`)
)

// checkS3Copy checks storage settings.
func (v backupValidator) checkS3Copy(at string, to v1alpha1.S3Copy) {
	if !v.requireText(at+".endpoint", to.Endpoint, "write the address of the storage, such as https://s3.example.com:9000") {
		if problem, hint := storageProblem(to.Endpoint); problem != "" {
			v.refuse(idInvalidAddress, at+".endpoint", quoteAddress(to.Endpoint)+" "+problem, hint)
		}
	}
	if !regionName.MatchString(to.Region) {
		v.refuse(idInvalidValue, at+".region", strconv.Quote(to.Region)+" is not a valid region",
			"write the name of the region, such as eu-central-1, or leave the field out")
	}
	if !v.requireText(at+".bucket", to.Bucket, "write the name of an existing bucket") &&
		(!bucketName.MatchString(to.Bucket) || strings.Contains(to.Bucket, "..") || net.ParseIP(to.Bucket) != nil) {
		v.refuse(idInvalidValue, at+".bucket", strconv.Quote(to.Bucket)+" is not a valid bucket name",
			"write 3 to 63 of a-z, 0-9, '-' and '.', such as prod-backups")
	}
	if to.Prefix != "" &&
		(!keyPrefix.MatchString(to.Prefix) || path.IsAbs(to.Prefix) || path.Clean(to.Prefix) != to.Prefix || to.Prefix == "." ||
			strings.HasPrefix(to.Prefix, "..")) {
		v.refuse(idInvalidValue, at+".prefix", strconv.Quote(to.Prefix)+" is not a valid key prefix",
			"write letters, digits, '.', '_', '-' and '/', without '/' first or last, such as etcd/prod")
	}
	for _, key := range []struct {
		field string
		from  *v1alpha1.SecretSource
	}{{".accessKeyFrom", to.AccessKeyFrom}, {".secretKeyFrom", to.SecretKeyFrom}} {
		if key.from == nil {
			v.refuse(idMissingField, at+key.field, "this field is required",
				"give a key that is used only for this purpose: Slipway stores the key where copies are made")
		}
		v.checkSecretSource(key.from, at+key.field)
	}
}

// storageProblem returns why an endpoint cannot be used.
func storageProblem(text string) (problem, hint string) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return "is not a URL", "write it as https://HOST:PORT"
	}
	_, known := hostaddress.Check(u.Hostname())
	number, err := strconv.Atoi(u.Port())
	switch {
	case u.Scheme == "http":
		return "is not encrypted: others on the network path could read and change the data",
			"use https, and set caFile if a private CA signed the storage's certificate"
	case u.Scheme != "https":
		return "is not an https URL", "write it as https://HOST:PORT"
	case !known || u.Port() != "" && (err != nil || number < 1 || number > 65535):
		return "does not contain a host and a port", "write it as https://HOST:PORT"
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "has more than a host and a port", "remove everything after https://" + u.Host + ", and write the bucket in the field bucket"
	}
	return "", ""
}

// storageAt returns the address of an endpoint in a canonical form.
func storageAt(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return endpoint // another check reports it
	}
	return strings.ToLower(net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")))
}

// checkS3Files checks the files and credentials for storage.
func (v fileValidator) checkS3Files(at string, to v1alpha1.S3Copy, p Paths) {
	v.checkSecretFrom(at+".accessKeyFrom", to.AccessKeyFrom, p)
	v.checkSecretFrom(at+".secretKeyFrom", to.SecretKeyFrom, p)
	if to.CAFile != "" {
		v.checkCertificates(at+".caFile", v.readContent(at+".caFile", to.CAFile, p, false), p.Resolve(to.CAFile), p.now())
	}
}
