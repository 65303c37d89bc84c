package spec

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"filippo.io/age"
	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec/hostaddress"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

const (
	// minBackupEvery is the shortest interval of snapshots.
	minBackupEvery = time.Minute
	// maxBackupKeep limits how many are kept.
	maxBackupKeep = 1000

	pathBackup     = "spec.etcd.backup"
	pathRecipients = pathBackup + ".recipients"
)

// setBackupDefaults sets the defaults of snapshots.
func setBackupDefaults(b *v1alpha1.EtcdBackup) {
	if b == nil {
		return
	}
	setDuration(&b.Every, DefaultBackupEvery)
	setDefault(&b.Keep, DefaultBackupKeep)
	setDuration(&b.DrillEvery, max(DefaultDrillEvery, b.Every.Duration))
	for i := range b.Copies {
		setDefault(&b.Copies[i].Keep, b.Keep)
		if m := b.Copies[i].SSH; m != nil {
			setDefault(&m.Port, DefaultSSHPort)
		}
		setS3Defaults(b.Copies[i].S3)
	}
}

// A backupValidator checks the settings of etcd snapshots and their copies.
type backupValidator struct{ *validator }

// checkBackup checks the settings of automatic snapshots.
func (v backupValidator) checkBackup(e v1alpha1.Etcd) {
	b := e.Backup
	if b == nil {
		return
	}
	if e.Type == EtcdExternal {
		v.refuse(idConflictingFields, pathBackup,
			"Slipway cannot back up an external etcd: none of its members runs on a host of the cluster",
			"leave the field out, and back up the external etcd with its own tools")
	}
	if b.Every != nil && b.Every.Duration < minBackupEvery {
		v.refuse(idInvalidDuration, pathBackup+".every", b.Every.Duration.String()+" is too short for a snapshot interval",
			"write a duration of at least "+minBackupEvery.String()+", such as 6h")
	}
	v.checkKeep(pathBackup+".keep", b.Keep)
	v.checkRestoreTests(*b)
	v.warnRepeated(pathRecipients, b.Recipients, recipientMeaning)
	for i, r := range b.Recipients {
		if keys, err := age.ParseRecipients(strings.NewReader(r)); err != nil || len(keys) != 1 {
			what := fmt.Sprintf("%.80q", r)
			if strings.Contains(strings.ToUpper(r), "AGE-SECRET-KEY-") {
				what = "the private key, which decrypts backup sets," // is never printed
			}
			v.refuse(idInvalidRecipient, yamlfile.IndexPath(pathRecipients, i), what+" is not a valid recipient",
				"create a key with age-keygen, and write the public key that it prints: age1…")
		}
	}
	v.checkCopies(e)
}

// recipientMeaning returns the public key of a recipient. A private key is not returned,
// because it must not be printed.
func recipientMeaning(key string) string {
	if key = strings.TrimSpace(key); strings.HasPrefix(key, "age1") {
		return key
	}
	return ""
}

// checkRestoreTests checks the interval of restore tests.
func (v backupValidator) checkRestoreTests(b v1alpha1.EtcdBackup) {
	if b.DrillEvery == nil || b.DrillEvery.Duration == 0 {
		return
	}
	every := DefaultBackupEvery
	if b.Every != nil {
		every = b.Every.Duration
	}
	if b.DrillEvery.Duration < every {
		v.refuse(idInvalidDuration, pathBackup+".drillEvery",
			b.DrillEvery.Duration.String()+" is shorter than the snapshot interval, which is "+every.String(),
			"write "+every.String()+" to test each snapshot, a longer time such as 168h, or 0s for no restore tests")
	}
}

func (v backupValidator) checkKeep(path string, keep int) {
	if keep < 0 || keep > maxBackupKeep {
		v.refuse(idInvalidValue, path, fmt.Sprintf("%d is not between 1 and %d", keep, maxBackupKeep),
			"write the number of snapshots that each etcd host keeps, such as 8")
	}
}

// eachCopy calls do for each copy target.
func eachCopy(c *v1alpha1.Cluster, do func(path string, to *v1alpha1.EtcdCopy)) {
	if c.Spec.Etcd.Backup == nil {
		return
	}
	for i := range c.Spec.Etcd.Backup.Copies {
		do(yamlfile.IndexPath(pathBackup+".copies", i), &c.Spec.Etcd.Backup.Copies[i])
	}
}

// CheckSavedState returns an error for the saved state of a cluster that lacks a part which
// validation has required: code that reads it relies on this. It checks nothing else,
// because the rules may have become stricter since.
func CheckSavedState(c *v1alpha1.Cluster) error {
	var list error
	eachCopy(c, func(path string, to *v1alpha1.EtcdCopy) {
		if to.Directory == "" && to.SSH == nil && to.S3 == nil || to.SSH != nil && to.SSH.PrivateKeyFrom == nil ||
			to.S3 != nil && (to.S3.AccessKeyFrom == nil || to.S3.SecretKeyFrom == nil) {
			list = errors.Join(list, fmt.Errorf("%s: the copy target or its key is missing", path))
		}
	})
	return list
}

// checkCopies checks the copy targets.
func (v backupValidator) checkCopies(e v1alpha1.Etcd) {
	if len(e.Backup.Copies) > 0 && len(e.Backup.Recipients) == 0 {
		v.refuse(idMissingField, pathRecipients, "copies contain keys and leave the machine that makes them: they must be encrypted",
			"create a key with age-keygen, keep it on another machine, and write its public key: recipients: [age1…]")
	}
	copies := func(h v1alpha1.Host) bool { return HasRole(h, v1alpha1.RoleControlPlane) }
	if hosts := EtcdHosts(v.c); len(e.Backup.Copies) > 0 && len(hosts) > 0 && !slices.ContainsFunc(hosts, copies) {
		v.refuse(idConflictingFields, pathBackup+".copies",
			"no etcd host is a control plane: copies would lack the CA keys of the cluster, which only control planes have",
			"give the role etcd to a control plane, which then makes the copies")
	}
	var names []string
	places := map[string]string{}
	eachCopy(v.c, func(path string, to *v1alpha1.EtcdCopy) {
		if !v.requireText(path+".name", to.Name, "write a name that is unique in this list, such as nas") {
			switch {
			case len(validation.IsDNS1123Label(to.Name)) > 0:
				v.refuse(idInvalidName, path+".name",
					strconv.Quote(to.Name)+
						" is not a valid name for a copy target: only a-z, 0-9 and '-' are allowed, with a letter or digit first and last",
					"write a name such as nas")
			case slices.Contains(names, to.Name):
				v.refuse(idDuplicateName, path+".name", strconv.Quote(to.Name)+" is used more than once", "give each copy target its own name")
			}
			names = append(names, to.Name)
		}
		v.checkKeep(path+".keep", to.Keep)
		v.checkCopyTarget(path, *to)
		at, field := placeOf(*to)
		switch other := places[at]; {
		case at == "":
		case other != "":
			v.refuse(idDuplicateAddress, path+field,
				"this target is already used by "+other+": each of the two would remove the other's copies",
				"use a different directory, or remove one of the two")
		default:
			places[at] = path
		}
	})
}

// placeOf returns the place of a copy target, which identifies it, and the field that
// sets it; "" means that the target is invalid, which another check reports.
func placeOf(to v1alpha1.EtcdCopy) (at, field string) {
	switch m, s := to.SSH, to.S3; {
	case m == nil && s == nil && to.Directory != "":
		return path.Clean(to.Directory), ".directory"
	case m != nil && s == nil && to.Directory == "" && m.Directory != "":
		return net.JoinHostPort(strings.ToLower(m.Address), strconv.Itoa(m.Port)) + " " + path.Clean(m.Directory), ".ssh.directory"
	case s != nil && m == nil && to.Directory == "" && s.Bucket != "":
		return storageAt(s.Endpoint) + " " + s.Bucket + " " + path.Clean(s.Prefix), ".s3.prefix"
	}
	return "", ""
}

// checkCopyTarget checks one copy target.
func (v backupValidator) checkCopyTarget(at string, to v1alpha1.EtcdCopy) {
	var given []string
	if to.Directory != "" {
		given = append(given, "directory")
	}
	if to.SSH != nil {
		given = append(given, "ssh")
	}
	if to.S3 != nil {
		given = append(given, "s3")
	}
	switch {
	case len(given) == 0:
		v.refuse(idMissingField, at, "the copy target is missing", "write directory, ssh or s3")
	case len(given) > 1:
		v.refuse(idConflictingFields, at+"."+given[1], strings.Join(given, " and ")+" are given",
			"keep one of them, and move the others to separate list entries")
	case to.SSH != nil:
		v.checkSSHCopy(at+".ssh", *to.SSH)
	case to.S3 != nil:
		v.checkS3Copy(at+".s3", *to.S3)
	case !path.IsAbs(to.Directory) || path.Clean(to.Directory) != to.Directory || to.Directory == "/":
		v.refuse(idInvalidValue, at+".directory", strconv.Quote(to.Directory)+" is not a valid mount point",
			"write an absolute path without '.' and '..', such as /mnt/backups")
	}
}

func (v backupValidator) checkSSHCopy(at string, to v1alpha1.SSHCopy) {
	if !v.requireText(at+".address", to.Address, "write the name or address of the backup server") {
		if hint, ok := hostaddress.Check(to.Address); !ok {
			v.refuse(idInvalidAddress, at+".address", quoteAddress(to.Address)+" is neither an IP address nor a host name", hint)
		}
	}
	v.requireText(at+".user", to.User, "write the user for the login on the backup server")
	v.checkLogin(to.User, to.Port, at)
	if !v.requireText(at+".directory", to.Directory, "write a directory on the backup server, such as /srv/backups") &&
		strings.ContainsRune(to.Directory, 0) {
		v.refuse(idInvalidValue, at+".directory", strconv.Quote(to.Directory)+" is not a valid directory", "write a path such as /srv/backups")
	}
	if to.PrivateKeyFrom == nil {
		v.refuse(idMissingField, at+".privateKeyFrom", "this field is required",
			"give a private key without a passphrase that is used only for this purpose: Slipway stores the key where copies are made")
	}
	v.checkSecretSource(to.PrivateKeyFrom, at+".privateKeyFrom")
	v.requireText(at+".hostKey", to.HostKey,
		"run `ssh-keyscan ADDRESS`, compare the key with the one on the backup server, and write the key type and the key from the output")
	v.checkHostKey(to.HostKey, at+".hostKey")
}

// checkCopyFiles checks the credentials for the copy targets.
func (v fileValidator) checkCopyFiles(p Paths) {
	eachCopy(v.c, func(path string, to *v1alpha1.EtcdCopy) {
		if to.S3 != nil {
			v.checkS3Files(path+".s3", *to.S3, p)
		}
		if to.SSH == nil || to.SSH.PrivateKeyFrom == nil {
			return
		}
		at, from := path+".ssh.privateKeyFrom", *to.SSH.PrivateKeyFrom
		v.checkSecretFrom(at, &from, p)
		from.File = p.Resolve(from.File)
		if info, err := os.Stat(from.File); err == nil && !info.Mode().IsRegular() {
			return // a pipe returns its secret only once
		}
		key, err := secret.ResolveSource(from)
		if err != nil {
			return // it was reported already
		}
		switch encrypted, problem, hint := InspectKey([]byte(key.Reveal())); {
		case problem != "":
			v.refuse(idKeyUnreadable, at, "the private key "+problem, hint)
		case encrypted:
			v.refuse(idKeyUnreadable, at, "the private key has a passphrase, and hosts cannot enter one",
				"create a key without a passphrase, only for this purpose: ssh-keygen -t ed25519 -N '' -f FILE")
		}
	})
}
