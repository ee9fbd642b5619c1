package status

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// owned are the conditions that the node writes; it drops those it no longer
// reports. All others belong to somebody else and are kept. DisruptionTarget is
// shared: ours replaces what is there, but its absence removes nothing.
var owned = map[corev1.PodConditionType]bool{
	corev1.PodScheduled:              true,
	corev1.PodInitialized:            true,
	corev1.PodReadyToStartContainers: true,
	corev1.ContainersReady:           true,
	corev1.PodReady:                  true,
	corev1.PodResizePending:          true,
	corev1.PodResizeInProgress:       true,
	corev1.AllContainersRestarting:   true,
}

// Foreign returns the conditions that others wrote, in order.
func Foreign(conditions []corev1.PodCondition) (foreign []corev1.PodCondition) {
	for _, c := range conditions {
		if !owned[c.Type] {
			foreign = append(foreign, c)
		}
	}
	return foreign
}

// Merge says what a pod's status should be where api is what is known of it now
// and ours is what the node reports. changed says that it differs from api, so
// that it must be written. Both are of the same pod, by uid. Neither is changed,
// but the result shares memory with them.
//
// Some things are never taken back: the phase never goes from Running to Pending
// nor away from Succeeded or Failed; the start time stays; restart counts and the
// observed generation don't fall; how a container ended isn't lost, neither is a
// container. A condition's transition time changes only with its status. What is
// not the node's to say is kept. Times have the API's resolution of one second.
func Merge(api, ours corev1.PodStatus) (merged corev1.PodStatus, changed bool) {
	merged = ours
	if api.StartTime != nil {
		merged.StartTime = api.StartTime
	}
	merged.StartTime = seconds(merged.StartTime)
	merged.ObservedGeneration = max(api.ObservedGeneration, ours.ObservedGeneration)
	if merged.QOSClass == "" {
		merged.QOSClass = api.QOSClass
	}
	if merged.HostIP == "" {
		merged.HostIP, merged.HostIPs = api.HostIP, api.HostIPs
	}
	// The scheduler's and the controllers' fields.
	merged.NominatedNodeName = api.NominatedNodeName
	merged.ResourceClaimStatuses = api.ResourceClaimStatuses
	merged.ExtendedResourceClaimStatus = api.ExtendedResourceClaimStatus
	merged.NodeAllocatableResourceClaimStatuses = api.NodeAllocatableResourceClaimStatuses

	merged.InitContainerStatuses = mergeContainers(api.InitContainerStatuses, ours.InitContainerStatuses)
	merged.ContainerStatuses = mergeContainers(api.ContainerStatuses, ours.ContainerStatuses)
	merged.EphemeralContainerStatuses = mergeContainers(api.EphemeralContainerStatuses, ours.EphemeralContainerStatuses)
	merged.Conditions = mergeConditions(api.Conditions, ours.Conditions)
	if phaseRank(api.Phase) > phaseRank(ours.Phase) || terminal(api.Phase) {
		merged.Phase = api.Phase
		if terminal(api.Phase) && api.Phase != ours.Phase {
			// Somebody ended the pod in the API before the node did; the reason
			// is theirs. kubernetes#108594: what has ended is never ready.
			merged.Reason, merged.Message = api.Reason, api.Message
			merged.Conditions = unready(merged.Conditions, api.Conditions, api.Phase)
		}
	}
	return merged, !equality.Semantic.DeepEqual(api, merged)
}

func terminal(p corev1.PodPhase) bool {
	return p == corev1.PodSucceeded || p == corev1.PodFailed
}

// phaseRank orders phases; a phase never gives way to one of a lower rank.
func phaseRank(p corev1.PodPhase) int {
	switch p {
	case corev1.PodPending:
		return 1
	case corev1.PodRunning:
		return 2
	case corev1.PodSucceeded, corev1.PodFailed:
		return 3
	case corev1.PodUnknown:
	}
	return 0
}

// mergeConditions keeps the order that the API has, and adds new ones at its end.
func mergeConditions(api, ours []corev1.PodCondition) []corev1.PodCondition {
	var merged []corev1.PodCondition
	for _, was := range api {
		switch i := conditionAt(ours, was.Type); {
		case i >= 0 && mine(was.Type):
			merged = append(merged, after(was, ours[i]))
		case !owned[was.Type]:
			merged = append(merged, was)
		}
	}
	for _, is := range ours {
		if mine(is.Type) && conditionAt(merged, is.Type) < 0 {
			merged = append(merged, after(corev1.PodCondition{}, is))
		}
	}
	return merged
}

// mine says that the node may write a condition.
func mine(t corev1.PodConditionType) bool { return owned[t] || t == corev1.DisruptionTarget }

// after is the condition is, where was stood before.
func after(was, is corev1.PodCondition) corev1.PodCondition {
	if was.Status == is.Status && !was.LastTransitionTime.IsZero() {
		is.LastTransitionTime = was.LastTransitionTime
	}
	is.LastTransitionTime = *seconds(&is.LastTransitionTime)
	is.LastProbeTime = *seconds(&is.LastProbeTime)
	return is
}

func conditionAt(list []corev1.PodCondition, t corev1.PodConditionType) int {
	return slices.IndexFunc(list, func(c corev1.PodCondition) bool { return c.Type == t })
}

// unready makes a copy in which nothing is ready, for a pod that has ended. What
// api says of it already stays.
func unready(conditions, api []corev1.PodCondition, phase corev1.PodPhase) []corev1.PodCondition {
	conditions = slices.Clone(conditions)
	for i := range conditions {
		c := &conditions[i]
		if c.Type != corev1.PodReady && c.Type != corev1.ContainersReady || c.Status != corev1.ConditionTrue {
			continue
		}
		if was := conditionAt(api, c.Type); was >= 0 && api[was].Status == corev1.ConditionFalse {
			*c = after(api[was], api[was])
		} else {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, "PodCompleted", ""
			if phase == corev1.PodFailed {
				c.Reason = "PodFailed"
			}
		}
	}
	return conditions
}

// seconds cuts a time to what the API keeps of it.
func seconds(t *metav1.Time) *metav1.Time {
	if t == nil || t.Nanosecond() == 0 {
		return t
	}
	return &metav1.Time{Time: t.Truncate(time.Second)}
}
