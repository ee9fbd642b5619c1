package remote

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// SecretLogin names a login from a pull secret: whose it is, and a hash of it.
type SecretLogin struct {
	UID       types.UID `json:"uid,omitempty"` // empty: the secret is from a file, where a name says little
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Hash      string    `json:"hash"`
}

// same says that both stand for one right: they are the same login, or the secret
// is the same object, whose login was changed since.
func (l SecretLogin) same(o SecretLogin) bool {
	return l.Hash != "" && l.Hash == o.Hash ||
		l.UID != "" && l.UID == o.UID && l.Namespace == o.Namespace && l.Name == o.Name
}

// maxSecretLogins is how many logins are remembered for one name of an image. A
// pod whose login was forgotten asks the registry.
const maxSecretLogins = 100

// access says who may use an image that is here, under one of its names. The zero
// value: nobody who has not asked the registry.
type access struct {
	Everyone bool          `json:"everyone,omitempty"` // it was pulled without a secret
	Secrets  []SecretLogin `json:"secrets,omitempty"`  // it was pulled with these, the newest last
}

// allows says whether a pod with these logins may use the image.
func (a access) allows(logins []SecretLogin) bool {
	return a.Everyone || slices.ContainsFunc(logins, func(l SecretLogin) bool {
		return slices.ContainsFunc(a.Secrets, l.same)
	})
}

// with is the access after a pull with this login; nil: one that each pod has.
func (a access) with(l *SecretLogin) access {
	switch {
	case a.Everyone:
		return a
	case l == nil:
		return access{Everyone: true}
	}
	others := slices.DeleteFunc(slices.Clone(a.Secrets), func(o SecretLogin) bool {
		return o.UID == l.UID && o.Namespace == l.Namespace && o.Name == l.Name && (l.UID != "" || o.Hash == l.Hash)
	})
	secrets := append(others, *l)
	return access{Secrets: secrets[max(len(secrets)-maxSecretLogins, 0):]}
}
