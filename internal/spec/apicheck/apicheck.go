// Package apicheck is the strict mode of the cluster specification, for Cluster objects in an
// API. The command line reads files, variables and keys of its user. A server that did the same
// for an object would give its own files and keys to every user with the right to write objects.
//
// An object names its files by keys: each file name is a key of a Secret or ConfigMap in
// spec.filesFrom. The name and the key are the same text. A key cannot contain "/", so a name
// cannot either, and an object has no directories.
//
// The package depends only on its arguments, and resolves no names. The code that uses an accepted
// object has these duties:
//
//   - It checks each address when it connects: a DNS name can belong to the server, and other
//     servers can redirect to it.
//   - It connects to hosts with an empty home directory and without SSH_AUTH_SOCK, because the
//     defaults of user, port, bastion and host key come from ~/.ssh.
//   - It opens a bundle reference without looking for a file of this name, and uses only the
//     registry logins of the object, not the logins of docker login.
//   - It checks that the user of the object may read its Secrets, because their content gets to
//     hosts of the user.
package apicheck

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// The limits of the files of one object, so that a server can hold the files of many objects.
const (
	// MaxFiles is the largest number of keys of all sources.
	MaxFiles = 1024
	// MaxFileBytes is the size limit of one file.
	MaxFileBytes = bounded.Argument
	// MaxTotalBytes is the size limit of all files together.
	MaxTotalBytes = 4 * bounded.Argument
)

const pathFilesFrom = "spec.filesFrom"

// CheckObject finds the fields of an object that refer to something on the machine of the
// server. It is for admission: the Secrets and ConfigMaps of the object may be created later.
// Validate finds all other problems.
func CheckObject(c *v1alpha1.Cluster) diag.List {
	k := &checker{cluster: c, complete: len(c.Spec.FilesFrom) == 0}
	k.refuseReservedSources()
	k.checkFields()
	k.checkLogins()
	return k.found
}

// A Source is the Secret or ConfigMap of an entry of spec.filesFrom. The zero value is an object
// that does not exist.
type Source struct {
	Found bool
	// Data has the content by key: the fields data and binaryData of a ConfigMap, and the decoded
	// field data of a Secret.
	Data map[string][]byte
}

// Check finds the problems of CheckObject, and problems of the files. sources belong to the
// entries of spec.filesFrom, in the same order. A cluster without errors uses only the files
// that MergeFiles returns for the same sources.
func Check(c *v1alpha1.Cluster, sources []Source) diag.List {
	k := &checker{cluster: c, complete: true}
	k.refuseReservedSources()
	k.checkSources(sources)
	k.checkFields()
	k.checkLogins()
	k.checkKeys()
	return k.found
}

// MergeFiles returns the files of an object by name. Later sources override earlier ones.
func MergeFiles(sources []Source) map[string][]byte {
	files := map[string][]byte{}
	for _, s := range sources {
		maps.Copy(files, s.Data)
	}
	return files
}

// A checker collects the problems of one object.
type checker struct {
	cluster *v1alpha1.Cluster
	files   map[string][]byte
	// complete reports whether files has all files of the object: a name without a file is
	// then an error.
	complete bool
	found    diag.List
}

// maxProblems limits the problems of one object, which can have a hundred thousand names.
const maxProblems = 500

func (k *checker) refuse(id, path, message, hint string) {
	if len(k.found) == maxProblems {
		return
	}
	k.found = append(k.found, diag.Diagnostic{ID: id, Severity: diag.Error, Path: path, Message: message, Hint: hint})
}

// reservedPrefixes begin the names of Secrets in which Slipway keeps kubeconfigs, keys and plans of clusters. A user
// can be allowed to change a cluster, but not to read these.
var reservedPrefixes = []string{"slipway.", "slipway-plan."}

// refuseReservedSources refuses Secrets of Slipway. Hooks could send them elsewhere.
func (k *checker) refuseReservedSources() {
	for i, source := range k.cluster.Spec.FilesFrom {
		if source.SecretRef == nil {
			continue
		}
		for _, prefix := range reservedPrefixes {
			if strings.HasPrefix(source.SecretRef.Name, prefix) {
				k.refuse(idSourceReserved, yamlfile.IndexPath(pathFilesFrom, i), sourceName(source)+" belongs to Slipway",
					"copy the files that the cluster needs into another Secret")
			}
		}
	}
}

// checkSources checks the Secrets and ConfigMaps of the object.
func (k *checker) checkSources(sources []Source) {
	named := k.cluster.Spec.FilesFrom
	sources = sources[:min(len(sources), len(named))]
	count, total := 0, 0
	for i, source := range named {
		path, name := yamlfile.IndexPath(pathFilesFrom, i), sourceName(source)
		if i >= len(sources) || !sources[i].Found {
			k.complete = false
			k.refuse(idSourceMissing, path, name+" does not exist", "create it in the namespace of the cluster, with the files as its keys")
			continue
		}
		data := sources[i].Data
		for _, key := range slices.Sorted(maps.Keys(data)) {
			size := len(data[key])
			count, total = count+1, total+size
			if !isKey(key) {
				k.refuse(idFileKey, path, name+" has the key "+quoteText(key)+", which is not a file name",
					"use letters, digits, '-', '_' and '.' in keys")
			}
			if size > MaxFileBytes {
				k.refuse(idFilesTooLarge, path, fmt.Sprintf("the file %s of %s has %d bytes", quoteText(key), name, size),
					"use a file of at most "+strconv.Itoa(MaxFileBytes)+" bytes")
			}
		}
	}
	if count > MaxFiles {
		k.refuse(idFilesTooLarge, pathFilesFrom, fmt.Sprintf("the sources have %d files together", count),
			"name only sources that this cluster uses: at most "+strconv.Itoa(MaxFiles)+" files")
	}
	if total > MaxTotalBytes {
		k.refuse(idFilesTooLarge, pathFilesFrom, fmt.Sprintf("the files have %d bytes together", total),
			"name only sources that this cluster uses: at most "+strconv.Itoa(MaxTotalBytes)+" bytes")
	}
	k.files = MergeFiles(sources)
}

// sourceName returns a source for people.
func sourceName(s v1alpha1.FilesSource) string {
	switch {
	case s.SecretRef != nil:
		return "Secret " + s.SecretRef.Name
	case s.ConfigMapRef != nil:
		return "ConfigMap " + s.ConfigMapRef.Name
	}
	return "the object"
}

// listSources returns the sources of the object for people.
func (k *checker) listSources() string {
	const most = 4
	var names []string
	for _, s := range k.cluster.Spec.FilesFrom {
		names = append(names, sourceName(s))
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], strconv.Itoa(more)+" more")
	}
	return strings.Join(names, ", ")
}
