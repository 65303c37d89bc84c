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
)

const (
	// minBackupEvery is how often snapshots may be taken at most.
	minBackupEvery = time.Minute
	// maxBackupKeep bounds how many are kept.
	maxBackupKeep = 1000

	pathBackup     = "spec.etcd.backup"
	pathRecipients = pathBackup + ".recipients"
)

// setBackupDefaults fills in what is not said of snapshots.
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

// backup judges the snapshots that hosts take by themselves.
func (v *validator) backup(e v1alpha1.Etcd) {
	b := e.Backup
	if b == nil {
		return
	}
	if e.Type == EtcdExternal {
		v.refuse(idConflictingFields, pathBackup, "an external etcd has its members on no host of the cluster", "leave this out; its snapshots are a matter of those who look after it")
	}
	if b.Every != nil && b.Every.Duration < minBackupEvery {
		v.refuse(idInvalidDuration, pathBackup+".every", b.Every.Duration.String()+" is too often for snapshots", "write a duration of "+minBackupEvery.String()+" or more, such as 6h")
	}
	v.keeps(pathBackup+".keep", b.Keep)
	v.drills(*b)
	v.warnRepeated(pathRecipients, b.Recipients, recipientMeaning)
	for i, r := range b.Recipients {
		if keys, err := age.ParseRecipients(strings.NewReader(r)); err != nil || len(keys) != 1 {
			what := fmt.Sprintf("%.80q", r)
			if strings.Contains(strings.ToUpper(r), "AGE-SECRET-KEY-") {
				what = "the private key, which opens sets," // is shown to nobody
			}
			v.refuse(idInvalidRecipient, indexed(pathRecipients, i), what+" is no key of a recipient", "make a key with age-keygen, and write what it prints as the public key: age1…")
		}
	}
	v.copies(e)
}

// recipientMeaning returns a recipient's key. A private key has no meaning here: it is
// shown to nobody.
func recipientMeaning(key string) string {
	if key = strings.TrimSpace(key); strings.HasPrefix(key, "age1") {
		return key
	}
	return ""
}

// drills judges how often a snapshot is tried.
func (v *validator) drills(b v1alpha1.EtcdBackup) {
	if b.DrillEvery == nil || b.DrillEvery.Duration == 0 {
		return
	}
	every := DefaultBackupEvery
	if b.Every != nil {
		every = b.Every.Duration
	}
	if b.DrillEvery.Duration < every {
		v.refuse(idInvalidDuration, pathBackup+".drillEvery", b.DrillEvery.Duration.String()+" is too often to try snapshots, which are taken every "+every.String(),
			"write "+every.String()+" to try each of them, a longer time such as 168h, or 0s to try none")
	}
}

func (v *validator) keeps(path string, keep int) {
	if keep < 0 || keep > maxBackupKeep {
		v.refuse(idInvalidValue, path, fmt.Sprintf("%d is not between 1 and %d", keep, maxBackupKeep), "write how many snapshots each member's host keeps, such as 8")
	}
}

// eachCopy goes through where copies of snapshots are kept.
func eachCopy(c *v1alpha1.Cluster, do func(path string, to *v1alpha1.EtcdCopy)) {
	if c.Spec.Etcd.Backup == nil {
		return
	}
	for i := range c.Spec.Etcd.Backup.Copies {
		do(indexed(pathBackup+".copies", i), &c.Spec.Etcd.Backup.Copies[i])
	}
}

// Whole refuses the record of a cluster that lacks what every one has that was judged
// before: who reads it goes by that. It judges nothing else, for the rules may have
// become stricter since.
func Whole(c *v1alpha1.Cluster) error {
	var list error
	eachCopy(c, func(path string, to *v1alpha1.EtcdCopy) {
		if to.Directory == "" && to.SSH == nil && to.S3 == nil || to.SSH != nil && to.SSH.PrivateKeyFrom == nil || to.S3 != nil && (to.S3.AccessKeyFrom == nil || to.S3.SecretKeyFrom == nil) {
			list = errors.Join(list, fmt.Errorf("%s: it is not said where the copies are kept, or by which key", path))
		}
	})
	return list
}

// copies judges where copies of snapshots are kept.
func (v *validator) copies(e v1alpha1.Etcd) {
	if len(e.Backup.Copies) > 0 && len(e.Backup.Recipients) == 0 {
		v.refuse(idMissingField, pathRecipients, "copies leave the hosts, with the keys of the cluster in them, and are encrypted to nobody",
			"make a key with age-keygen, keep it elsewhere, and write what it prints as the public key: recipients: [age1…]")
	}
	copies := func(h v1alpha1.Host) bool { return HasRole(h, v1alpha1.RoleControlPlane) }
	if hosts := EtcdHosts(v.c); len(e.Backup.Copies) > 0 && len(hosts) > 0 && !slices.ContainsFunc(hosts, copies) {
		v.refuse(idConflictingFields, pathBackup+".copies", "no host with a member of etcd is a control plane, and those alone have the keys of the cluster's authorities: a copy without them is worth little",
			"leave this out, and make sets on this machine: slipway etcd snapshot --of "+hosts[0].Name+"; or give a control plane the role etcd, which copies then")
	}
	var names []string
	places := map[string]string{}
	eachCopy(v.c, func(path string, to *v1alpha1.EtcdCopy) {
		if !v.missing(path+".name", to.Name, "give it a name that nothing else here has, such as nas") {
			switch {
			case len(validation.IsDNS1123Label(to.Name)) > 0:
				v.refuse(idInvalidName, path+".name", strconv.Quote(to.Name)+" cannot name where copies are kept: only a-z, 0-9 and '-' are allowed, with a letter or digit first and last", "such as nas")
			case slices.Contains(names, to.Name):
				v.refuse(idDuplicateName, path+".name", strconv.Quote(to.Name)+" stands twice", "give each its own name")
			}
			names = append(names, to.Name)
		}
		v.keeps(path+".keep", to.Keep)
		v.copyTo(path, *to)
		at, field := placeOf(*to)
		switch other := places[at]; {
		case at == "":
		case other != "":
			v.refuse(idDuplicateAddress, path+field, "copies are kept there already by "+other+": each would remove those of the other", "write another directory, or leave one of them out")
		default:
			places[at] = path
		}
	})
}

// placeOf is where copies are kept, by which one place is told from others, and the
// field that says so; "" is said elsewhere not to be one.
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

// copyTo judges one place.
func (v *validator) copyTo(at string, to v1alpha1.EtcdCopy) {
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
		v.refuse(idMissingField, at, "it is not said where the copies are kept", "write directory, ssh or s3")
	case len(given) > 1:
		v.refuse(idConflictingFields, at+"."+given[1], strings.Join(given, " and ")+" are given", "keep one of them, and give the others names of their own")
	case to.SSH != nil:
		v.copyBySSH(at+".ssh", *to.SSH)
	case to.S3 != nil:
		v.copyToS3(at+".s3", *to.S3)
	case !path.IsAbs(to.Directory) || path.Clean(to.Directory) != to.Directory || to.Directory == "/":
		v.refuse(idInvalidValue, at+".directory", strconv.Quote(to.Directory)+" is no directory that a file system can be mounted at", "write an absolute path without '.' and '..', such as /mnt/backups")
	}
}

func (v *validator) copyBySSH(at string, to v1alpha1.SSHCopy) {
	if !v.missing(at+".address", to.Address, "write the name or address of the machine") {
		if hint, ok := hostAddress(to.Address); !ok {
			v.refuse(idInvalidAddress, at+".address", quoteAddress(to.Address)+" is neither an IP address nor a host name", hint)
		}
	}
	v.missing(at+".user", to.User, "write as whom the hosts log in there")
	v.login(to.User, to.Port, at)
	if !v.missing(at+".directory", to.Directory, "write the directory of that machine, such as /srv/backups") && strings.ContainsRune(to.Directory, 0) {
		v.refuse(idInvalidValue, at+".directory", strconv.Quote(to.Directory)+" is no directory", "write a path such as /srv/backups")
	}
	if to.PrivateKeyFrom == nil {
		v.refuse(idMissingField, at+".privateKeyFrom", "this field is required", "name a private key without a passphrase that is for this alone: it goes to the hosts with a member of etcd")
	}
	v.secretSource(to.PrivateKeyFrom, at+".privateKeyFrom")
	v.missing(at+".hostKey", to.HostKey, "write what `ssh-keyscan ADDRESS` prints behind the name, once you have compared it there")
	v.hostKey(to.HostKey, at+".hostKey")
}

// copyFiles looks at what hosts log in with where copies are kept.
func (v *validator) copyFiles(p Paths) {
	eachCopy(v.c, func(path string, to *v1alpha1.EtcdCopy) {
		if to.S3 != nil {
			v.s3Files(path+".s3", *to.S3, p)
		}
		if to.SSH == nil || to.SSH.PrivateKeyFrom == nil {
			return
		}
		at, from := path+".ssh.privateKeyFrom", *to.SSH.PrivateKeyFrom
		v.secretFrom(at, &from, p)
		from.File = p.Resolve(from.File)
		if info, err := os.Stat(from.File); err == nil && !info.Mode().IsRegular() {
			return // a pipe gives its secret once
		}
		key, err := secret.Resolve(from)
		if err != nil {
			return // secretFrom has said so
		}
		switch encrypted, problem, hint := inspectKey([]byte(key.Reveal())); {
		case problem != "":
			v.refuse(idKeyUnreadable, at, "what it names "+problem, hint)
		case encrypted:
			v.refuse(idKeyUnreadable, at, "the private key has a passphrase, which nobody types on the hosts", "make one without, for this alone: ssh-keygen -t ed25519 -N '' -f FILE")
		}
	})
}
