//go:build seccomp

// A memo between libcontainer and libseccomp. libseccomp takes some 20 ms to turn
// a profile into a program, in each process that becomes a container, for the
// same profile each time.
//
// The linker puts the functions below between the two (--wrap). They write down
// what the filter is told. Where file descriptor MEMO_FD holds the record of an
// earlier process, rules are left out as long as they are the same as its, and
// the program is taken from it in the end. At the first difference everything
// left out is made up for, so that the program is always the one libseccomp
// would have made. Where MEMO_FD is an empty file, the record is written to it.
//
// All runs on one thread of a process that is about to become a container.

#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEMO_FD 3

scmp_filter_ctx __real_seccomp_init(uint32_t action);
int __real_seccomp_arch_add(scmp_filter_ctx ctx, uint32_t arch);
int __real_seccomp_attr_set(scmp_filter_ctx ctx, enum scmp_filter_attr attr, uint32_t value);
int __real_seccomp_rule_add_array(scmp_filter_ctx ctx, uint32_t action, int call, unsigned int n, const struct scmp_arg_cmp *args);
int __real_seccomp_rule_add_exact_array(scmp_filter_ctx ctx, uint32_t action, int call, unsigned int n, const struct scmp_arg_cmp *args);
int __real_seccomp_export_bpf(const scmp_filter_ctx ctx, int fd);

enum what { INIT = 1, ARCH, ATTR, RULE, EXACT };

// head begins a record; told bytes of steps and program bytes of BPF follow.
struct head {
	char magic[8];
	uint32_t told, program;
};
static const char magic[8] = "berthsc1";

// step is one thing a filter was told. It has no padding, so that memcmp works.
struct step {
	uint32_t what, a, b, n;
	struct {
		uint32_t arg, op;
		uint64_t a, b;
	} args[6];
};

static enum { OFF, REPLAY, RECORD } mode;
static struct step *told;
static size_t steps, room;
static const unsigned char *memo; // the record that is replayed
static size_t memo_size;
static scmp_filter_ctx filter; // the one that is followed

static int write_all(int fd, const void *data, size_t size) {
	for (const char *p = data; size > 0;) {
		ssize_t n = write(fd, p, size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		p += n;
		size -= n;
	}
	return 0;
}

static const struct head *head(void) { return (const struct head *)memo; }

// open_memo finds out whether MEMO_FD is a record, or an empty file for one.
static void open_memo(void) {
	struct stat st;
	struct head h;
	int seals = fcntl(MEMO_FD, F_GET_SEALS);
	mode = OFF;
	if (seals < 0 || fstat(MEMO_FD, &st) < 0 || !S_ISREG(st.st_mode))
		return; // no memfd
	if (st.st_size == 0) {
		mode = RECORD;
		return;
	}
	if (!(seals & F_SEAL_WRITE) || pread(MEMO_FD, &h, sizeof h, 0) != sizeof h || memcmp(h.magic, magic, sizeof magic))
		return;
	if (sizeof h + (uint64_t)h.told + h.program != (uint64_t)st.st_size || h.told % sizeof(struct step))
		return;
	memo_size = st.st_size;
	memo = mmap(NULL, memo_size, PROT_READ, MAP_PRIVATE, MEMO_FD, 0);
	if (memo != MAP_FAILED)
		mode = REPLAY;
}

static int tell(const struct step *s) {
	if (steps == room) {
		size_t more = room ? 2 * room : 512;
		struct step *p = realloc(told, more * sizeof *p);
		if (!p)
			return -ENOMEM;
		told = p;
		room = more;
	}
	told[steps++] = *s;
	return 0;
}

// same says that the last step is the record's too.
static int same(void) {
	size_t at = (steps - 1) * sizeof(struct step);
	return at + sizeof(struct step) <= head()->told &&
	       !memcmp(memo + sizeof(struct head) + at, &told[steps - 1], sizeof(struct step));
}

static int really_add(const struct step *s) {
	struct scmp_arg_cmp args[6];
	for (uint32_t i = 0; i < s->n; i++)
		args[i] = (struct scmp_arg_cmp){s->args[i].arg, s->args[i].op, s->args[i].a, s->args[i].b};
	if (s->what == EXACT)
		return __real_seccomp_rule_add_exact_array(filter, s->a, (int)s->b, s->n, args);
	return __real_seccomp_rule_add_array(filter, s->a, (int)s->b, s->n, args);
}

// make_up tells libseccomp the rules that were left out, up to n steps.
static int make_up(size_t n) {
	mode = OFF;
	for (size_t i = 0; i < n; i++) {
		if (told[i].what != RULE && told[i].what != EXACT)
			continue;
		int err = really_add(&told[i]);
		if (err < 0)
			return err;
	}
	return 0;
}

// note follows one step that libseccomp is told too.
static int note(scmp_filter_ctx ctx, uint32_t what, uint32_t a, uint32_t b) {
	struct step s;
	if (mode == OFF || ctx != filter)
		return 0;
	memset(&s, 0, sizeof s);
	s.what = what;
	s.a = a;
	s.b = b;
	int err = tell(&s);
	if (!err && mode == REPLAY && !same())
		err = make_up(steps);
	return err;
}

scmp_filter_ctx __wrap_seccomp_init(uint32_t action) {
	scmp_filter_ctx ctx = __real_seccomp_init(action);
	if (!ctx || filter)
		return ctx; // only the first filter of a process is followed
	filter = ctx;
	open_memo();
	if (note(ctx, INIT, action, seccomp_version()->major << 16 | seccomp_version()->minor << 8 | seccomp_version()->micro))
		mode = OFF;
	return ctx;
}

int __wrap_seccomp_arch_add(scmp_filter_ctx ctx, uint32_t arch) {
	int err = note(ctx, ARCH, arch, 0);
	return err ? err : __real_seccomp_arch_add(ctx, arch);
}

int __wrap_seccomp_attr_set(scmp_filter_ctx ctx, enum scmp_filter_attr attr, uint32_t value) {
	int err = note(ctx, ATTR, attr, value);
	return err ? err : __real_seccomp_attr_set(ctx, attr, value);
}

static int add(enum what what, scmp_filter_ctx ctx, uint32_t action, int call, unsigned int n, const struct scmp_arg_cmp *args) {
	struct step s;
	if (mode == OFF || ctx != filter || n > 6) {
		int err = mode == REPLAY && ctx == filter ? make_up(steps) : 0;
		mode = ctx == filter ? OFF : mode;
		if (err)
			return err;
		return what == EXACT ? __real_seccomp_rule_add_exact_array(ctx, action, call, n, args)
				     : __real_seccomp_rule_add_array(ctx, action, call, n, args);
	}
	memset(&s, 0, sizeof s);
	s.what = what;
	s.a = action;
	s.b = (uint32_t)call;
	s.n = n;
	for (unsigned int i = 0; i < n; i++) {
		s.args[i].arg = args[i].arg;
		s.args[i].op = args[i].op;
		s.args[i].a = args[i].datum_a;
		s.args[i].b = args[i].datum_b;
	}
	int err = tell(&s);
	if (err)
		return err;
	if (mode == RECORD) {
		err = really_add(&s);
		if (err)
			mode = OFF; // what libseccomp refused cannot be promised to a later process
		return err;
	}
	return same() ? 0 : make_up(steps);
}

int __wrap_seccomp_rule_add_array(scmp_filter_ctx ctx, uint32_t action, int call, unsigned int n, const struct scmp_arg_cmp *args) {
	return add(RULE, ctx, action, call, n, args);
}

int __wrap_seccomp_rule_add_exact_array(scmp_filter_ctx ctx, uint32_t action, int call, unsigned int n, const struct scmp_arg_cmp *args) {
	return add(EXACT, ctx, action, call, n, args);
}

// export_and_record exports to fd, and writes the record.
static int export_and_record(int fd) {
	struct head h;
	char *program = NULL;
	struct stat st;
	int tmp = memfd_create("seccomp", MFD_CLOEXEC);
	if (tmp < 0)
		return __real_seccomp_export_bpf(filter, fd);
	int err = __real_seccomp_export_bpf(filter, tmp);
	if (!err && (fstat(tmp, &st) < 0 || !(program = malloc(st.st_size)) || pread(tmp, program, st.st_size, 0) != st.st_size))
		err = -EIO;
	close(tmp);
	if (!err && write_all(fd, program, st.st_size) < 0)
		err = -EIO;
	if (!err) {
		memcpy(h.magic, magic, sizeof magic);
		h.told = steps * sizeof *told;
		h.program = st.st_size;
		// A record that is not whole is no record; the filter is good all the same.
		if (write_all(MEMO_FD, &h, sizeof h) < 0 || write_all(MEMO_FD, told, h.told) < 0 || write_all(MEMO_FD, program, st.st_size) < 0)
			(void)!ftruncate(MEMO_FD, 0);
	}
	free(program);
	return err;
}

int __wrap_seccomp_export_bpf(const scmp_filter_ctx ctx, int fd) {
	int err = 0;
	if (ctx != filter)
		return __real_seccomp_export_bpf(ctx, fd);
	if (mode == REPLAY && steps * sizeof *told == head()->told) {
		if (write_all(fd, memo + sizeof(struct head) + head()->told, head()->program) < 0)
			err = -EIO;
	} else if (mode == RECORD) {
		err = export_and_record(fd);
	} else {
		if (mode == REPLAY)
			err = make_up(steps);
		if (!err)
			err = __real_seccomp_export_bpf(ctx, fd);
	}
	// The container must not get it.
	if (fcntl(MEMO_FD, F_GET_SEALS) >= 0)
		close(MEMO_FD);
	mode = OFF;
	return err;
}
