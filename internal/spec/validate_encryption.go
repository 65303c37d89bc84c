package spec

import (
	"slices"
	"strconv"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// The encryption providers of API servers.
const (
	EncryptionSecretbox = "secretbox"
	EncryptionAESCBC    = "aescbc"
)

const (
	pathEncryption = "spec.kubernetes.encryption"
	pathArguments  = "spec.kubernetes.apiServer.extraArgs"
)

// EncryptionFlag is the API server argument for its encryption configuration.
const EncryptionFlag = "encryption-provider-config"

// EncryptionFile has the keys with which the API server of a control plane encrypts data
// in etcd.
const EncryptionFile = "/etc/kubernetes/slipway/encryption.yaml"

// IDEncryptionForeign means that an API server uses an encryption configuration of the user.
const IDEncryptionForeign = "encryption-foreign"

// encryptableResources returns the resources that can be encrypted: resources in which users store
// confidential data.
func encryptableResources() []string {
	return []string{"secrets", "configmaps", "serviceaccounts", "persistentvolumes", "persistentvolumeclaims"}
}

// checkEncryption rejects settings with which API servers would not encrypt, or not safely.
func (v *validator) checkEncryption(e *v1alpha1.Encryption) {
	args := v.c.Spec.Kubernetes.APIServer.ExtraArgs
	if e == nil {
		if args[EncryptionFlag] == EncryptionFile {
			v.refuse(IDEncryptionForeign, yamlfile.KeyPath(pathArguments, EncryptionFlag),
				EncryptionFile+" is managed by Slipway, and Slipway would remove it", "write "+pathEncryption+" instead")
		}
		return
	}
	providers := []string{EncryptionSecretbox, EncryptionAESCBC}
	switch {
	case e.Provider == "aesgcm":
		v.refuse(idEncryptionCipher, pathEncryption+".provider",
			"aesgcm needs a new key every 200,000 writes, and Slipway does not count writes", "use secretbox, which has no such limit")
	case e.Provider != "" && !slices.Contains(providers, e.Provider):
		v.refuse(idEncryptionCipher, pathEncryption+".provider",
			strconv.Quote(e.Provider)+" is not a supported encryption provider with keys on control planes", "use "+orList(providers))
	}
	if e.Generation < 0 {
		v.refuse(idInvalidValue, pathEncryption+".generation", strconv.Itoa(e.Generation)+" is negative",
			"write 1 or more, or leave the field out")
	}
	for i, r := range e.Resources {
		at := yamlfile.IndexPath(pathEncryption+".resources", i)
		if !slices.Contains(encryptableResources(), r) {
			v.refuse(idEncryptionResource, at, strconv.Quote(r)+" cannot be encrypted by this setting", "use "+orList(encryptableResources()))
		} else if slices.Contains(e.Resources[:i], r) {
			v.refuse(idEncryptionResource, at, r+" is listed more than once", "keep one of the two")
		}
	}
	for _, flag := range []string{EncryptionFlag, EncryptionFlag + "-automatic-reload"} {
		if _, own := args[flag]; own {
			v.refuse(IDEncryptionForeign, yamlfile.KeyPath(pathArguments, flag),
				"an API server cannot use your encryption configuration and Slipway's at the same time",
				"remove the argument or "+pathEncryption+"; before you remove your own configuration, decrypt the data with it")
		}
	}
}
