package credentials

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1 "k8s.io/kubelet/config/v1"
	"k8s.io/utils/ptr"
)

// ServiceAccounts is the access to an API server for plugins with tokenAttributes. Its methods may be called
// concurrently.
type ServiceAccounts interface {
	// ServiceAccount returns the service account, which is read-only.
	ServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	// Token requests a token of the service account. [Plugins] keeps it while pulls of the pod need it, for 80 % of its
	// lifetime at most, so that an implementation does not have to keep or refresh it.
	Token(ctx context.Context, namespace, serviceAccount string,
		request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// identity is for whom a plugin is executed. The zero value is the node.
type identity struct {
	account     *ServiceAccount
	token       string
	annotations map[string]string
	// key is a part of the key of cached answers, and empty for the node.
	key string
}

// identify returns for whom the plugin is to be executed for the pod. It returns false if the plugin has nothing for
// the pod: the pod has no service account, or the account lacks a required annotation.
func (p *Plugins) identify(ctx context.Context, pl *plugin, pod *v1.Pod) (identity, bool, error) {
	attributes := pl.config.TokenAttributes
	if attributes == nil {
		return identity{}, true, nil
	}
	if pod == nil || pod.Spec.ServiceAccountName == "" {
		return identity{}, !*attributes.RequireServiceAccount, nil
	}
	if p.opts.ServiceAccounts == nil {
		if pl.logged.CompareAndSwap(false, true) {
			p.opts.Logger.Info("A credential provider needs the service accounts of pods, and there is no API "+
				"server: it is not used for pods with one",
				"provider", pl.config.Name)
		}
		return identity{}, false, nil
	}
	name := pod.Spec.ServiceAccountName
	about := fmt.Sprintf("service account %s/%s", pod.Namespace, name)
	account, err := p.opts.ServiceAccounts.ServiceAccount(ctx, pod.Namespace, name)
	if err == nil && account == nil {
		err = errors.New("not found")
	}
	if err != nil {
		return identity{}, false, fmt.Errorf("%s: %w", about, err)
	}
	annotations, missing := chosen(account, attributes)
	if missing != "" { // with this annotation, pods select the plugin
		p.opts.Logger.V(2).Info("The service account lacks an annotation that the credential provider requires",
			"provider", pl.config.Name,
			"namespace", pod.Namespace, "serviceAccount", name, "annotation", missing)
		return identity{}, false, nil
	}
	token, err := p.token(ctx, pod, account, attributes.ServiceAccountTokenAudience)
	if err != nil {
		return identity{}, false, fmt.Errorf("token of %s: %w", about, err)
	}
	id := identity{
		account: &ServiceAccount{UID: account.UID, Namespace: pod.Namespace, Name: name}, token: token,
		annotations: annotations,
	}
	parts := append([]string{pod.Namespace, name, string(account.UID)}, pairs(annotations)...)
	if attributes.CacheType == configv1.TokenServiceAccountTokenCacheType {
		parts = append(parts, "token", token)
	}
	id.key = digest(parts...)
	return id, true, nil
}

// chosen returns the annotations that the plugin receives, or the first required one that is missing.
func chosen(account *v1.ServiceAccount,
	attributes *configv1.ServiceAccountTokenAttributes) (annotations map[string]string, missing string) {
	annotations = map[string]string{}
	for _, key := range attributes.RequiredServiceAccountAnnotationKeys {
		value, ok := account.Annotations[key]
		if !ok {
			return nil, key
		}
		annotations[key] = value
	}
	for _, key := range attributes.OptionalServiceAccountAnnotationKeys {
		if value, ok := account.Annotations[key]; ok {
			annotations[key] = value
		}
	}
	return annotations, ""
}

const (
	// defaultTokenLifetime is that of an API server, for one that does not answer with it.
	defaultTokenLifetime = time.Hour
	// maxTokenAge is kubelet's.
	maxTokenAge = 24 * time.Hour
)

// token returns a token of the service account that is bound to the pod. Pulls of the pod share it.
func (p *Plugins) token(ctx context.Context, pod *v1.Pod, account *v1.ServiceAccount, audience string) (string, error) {
	key := digest(pod.Namespace, pod.Name, string(pod.UID), pod.Spec.ServiceAccountName, string(account.UID), audience)
	return p.tokenRequests.Do(ctx, "waiting for another request", key, func(func() int) (string, error) {
		if token, ok := p.tokens.get(key); ok {
			return token, nil
		}
		request := &authenticationv1.TokenRequest{
			ObjectMeta: metav1.ObjectMeta{UID: account.UID},
			Spec: authenticationv1.TokenRequestSpec{
				Audiences: []string{audience},
				BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod",
					Name: pod.Name, UID: pod.UID},
			},
		}
		got, err := p.opts.ServiceAccounts.Token(ctx, pod.Namespace, pod.Spec.ServiceAccountName, request)
		if err == nil && (got == nil || got.Status.Token == "") {
			err = errors.New("the API server has answered without a token")
		}
		if err != nil {
			return "", err
		}
		// From its arrival, by the clock of the node: the clock of the API server may differ.
		lifetime := time.Duration(ptr.Deref(got.Spec.ExpirationSeconds,
			int64(defaultTokenLifetime/time.Second))) * time.Second
		p.tokens.put(key, got.Status.Token, len(got.Status.Token), min(lifetime/5*4, maxTokenAge))
		return got.Status.Token, nil
	})
}
