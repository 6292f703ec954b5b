/* The three hot loops of compiling a grammar: subset construction, minimisation, token masks.
 *
 * Plain C, no dependency; every function has a twin in portable.py that gives the same result.
 * Arrays belong to the caller. Negative results are the codes below.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOO_MANY_STATES = -1, OUT_OF_TIME = -2, OUT_OF_MEMORY = -3 };
#define DEAD INT32_MIN

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare_ints(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void sort_ints(int32_t *v, int64_t n) {
    if (n > 24) {
        qsort(v, (size_t)n, sizeof *v, compare_ints);
        return;
    }
    for (int64_t i = 1; i < n; i++) {
        int32_t x = v[i];
        int64_t j = i;
        for (; j > 0 && v[j - 1] > x; j--) v[j] = v[j - 1];
        v[j] = x;
    }
}

/* Subset construction. Sets of NFA states are kept in one pool and found by hash. */
typedef struct {
    const int32_t *eps_first, *eps_dst, *edge_first;
    int32_t final;
    int32_t *stamp, *stack, clock;
    int32_t *pool;
    int64_t pool_len, pool_cap;
    int64_t *first; /* [max_states + 1] where each set begins in the pool */
    int32_t *table;
    int64_t table_len;
    int32_t count, max_states;
    uint8_t *accepting;
} Subsets;

static uint64_t set_hash(const int32_t *set, int64_t len) {
    uint64_t h = 1469598103934665603ull;
    for (int64_t i = 0; i < len; i++) h = (h ^ (uint64_t)set[i]) * 1099511628211ull;
    return h ^ (h >> 31);
}

/* Make room in the table of hashes for twice as many sets; return 0 where memory ends. */
static int grow_table(Subsets *s) {
    int64_t len = 2 * s->table_len;
    int32_t *table = malloc((size_t)len * sizeof *table);
    if (!table) return 0;
    memset(table, 0xFF, (size_t)len * sizeof *table);
    for (int32_t i = 0; i < s->count; i++) {
        int64_t at = (int64_t)set_hash(s->pool + s->first[i], s->first[i + 1] - s->first[i]);
        for (at &= len - 1; table[at] >= 0;) at = (at + 1) & (len - 1);
        table[at] = i;
    }
    free(s->table);
    s->table = table;
    s->table_len = len;
    return 1;
}

/* Close `n` seeds under epsilon, look the set up or enter it; return its number. */
static int32_t intern(Subsets *s, const int32_t *seeds, int64_t n) {
    int64_t base = s->pool_len, top = 0;
    uint8_t accepts = 0;
    s->clock++;
    for (int64_t i = 0; i < n; i++)
        if (s->stamp[seeds[i]] != s->clock) {
            s->stamp[seeds[i]] = s->clock;
            s->stack[top++] = seeds[i];
        }
    while (top) {
        int32_t q = s->stack[--top];
        if (s->edge_first[q + 1] > s->edge_first[q] || q == s->final) {
            if (s->pool_len == s->pool_cap) {
                int64_t cap = 2 * s->pool_cap;
                int32_t *grown = realloc(s->pool, (size_t)cap * sizeof *grown);
                if (!grown) return OUT_OF_MEMORY;
                s->pool = grown;
                s->pool_cap = cap;
            }
            s->pool[s->pool_len++] = q;
            accepts |= q == s->final;
        }
        for (int32_t e = s->eps_first[q]; e < s->eps_first[q + 1]; e++) {
            int32_t d = s->eps_dst[e];
            if (s->stamp[d] != s->clock) {
                s->stamp[d] = s->clock;
                s->stack[top++] = d;
            }
        }
    }
    int64_t len = s->pool_len - base;
    sort_ints(s->pool + base, len);
    int64_t at = (int64_t)set_hash(s->pool + base, len) & (s->table_len - 1);
    for (; s->table[at] >= 0; at = (at + 1) & (s->table_len - 1)) {
        int32_t other = s->table[at];
        int64_t start = s->first[other];
        if (s->first[other + 1] - start == len &&
            !memcmp(s->pool + start, s->pool + base, (size_t)len * sizeof(int32_t))) {
            s->pool_len = base;
            return other;
        }
    }
    if (s->count == s->max_states) return TOO_MANY_STATES;
    s->table[at] = s->count;
    s->accepting[s->count] = accepts;
    s->first[s->count + 1] = s->pool_len;
    if (2 * (int64_t)++s->count > s->table_len && !grow_table(s)) return OUT_OF_MEMORY;
    return s->count - 1;
}

/* Return the number of states; trans[max_states * C] is -1 where nothing matches. */
int64_t determinize(int32_t num_states, int32_t start, int32_t final, const int32_t *eps_first,
                    const int32_t *eps_dst, const int32_t *edge_first, const int32_t *edge_set,
                    const int32_t *edge_dst, int32_t C, const uint8_t *sets, int32_t max_states,
                    double max_s, int32_t *trans, uint8_t *accepting) {
    double end = now() + max_s;
    int64_t result = OUT_OF_MEMORY, num_edges = edge_first[num_states];
    Subsets s = {.eps_first = eps_first, .eps_dst = eps_dst, .edge_first = edge_first, .final = final};
    s.max_states = max_states;
    s.accepting = accepting;
    s.pool_cap = 4096;
    s.table_len = 256;
    s.stamp = calloc((size_t)num_states, sizeof(int32_t));
    s.stack = malloc((size_t)num_states * sizeof(int32_t));
    s.pool = malloc((size_t)s.pool_cap * sizeof(int32_t));
    s.first = calloc((size_t)max_states + 1, sizeof(int64_t));
    s.table = malloc((size_t)s.table_len * sizeof(int32_t));
    /* The targets that the last class takes from the state at hand, then those of this class. */
    int32_t *lists = malloc((size_t)(num_edges + 1) * (size_t)2 * sizeof(int32_t));
    int32_t *chosen = lists + num_edges + 1;
    if (!s.stamp || !s.stack || !s.pool || !s.first || !s.table || !lists)
        goto done;
    memset(s.table, 0xFF, (size_t)s.table_len * sizeof(int32_t));
    result = intern(&s, &start, 1);
    for (int32_t state = 0; result >= 0 && state < s.count; state++) {
        if ((state & 63) == 0 && now() > end) {
            result = OUT_OF_TIME;
            break;
        }
        int32_t last_len = -1, last_target = -1;
        for (int32_t c = 0; c < C; c++) {
            int32_t len = 0;
            for (int64_t i = s.first[state]; i < s.first[state + 1]; i++) {
                int32_t q = s.pool[i];
                for (int32_t e = edge_first[q]; e < edge_first[q + 1]; e++)
                    if (sets[(int64_t)edge_set[e] * C + c]) chosen[len++] = edge_dst[e];
            }
            int32_t target = -1;
            if (len == last_len && !memcmp(lists, chosen, (size_t)len * sizeof(int32_t))) {
                target = last_target; /* neighbouring classes mostly go the same way */
            } else if (len) {
                result = intern(&s, chosen, len);
                if (result < 0) break;
                target = (int32_t)result;
                memcpy(lists, chosen, (size_t)len * sizeof(int32_t));
                last_len = len;
                last_target = target;
            }
            trans[(int64_t)state * C + c] = target;
        }
    }
    if (result >= 0) result = s.count;
done:
    free(s.stamp), free(s.stack), free(s.pool), free(s.first), free(s.table);
    free(lists);
    return result;
}

/* Minimisation by partition refinement over blocks of states and of transitions
 * (A. Valmari, Fast brief practical DFA minimization, Inf. Proc. Letters 112, 2012). */
typedef struct {
    int32_t count, *elems, *loc, *set, *first, *past, *marked, *touched, num_touched;
} Partition;

static int partition_init(Partition *p, int32_t n) {
    int32_t *block = malloc(((size_t)n * 7 + 7) * sizeof(int32_t));
    if (!block) return 0;
    p->elems = block, p->loc = block + n, p->set = block + 2 * (size_t)n;
    p->first = block + 3 * (size_t)n + 1, p->past = block + 4 * (size_t)n + 2;
    p->marked = block + 5 * (size_t)n + 3, p->touched = block + 6 * (size_t)n + 4;
    p->count = n > 0, p->num_touched = 0;
    for (int32_t i = 0; i < n; i++) p->elems[i] = p->loc[i] = i, p->set[i] = 0, p->marked[i] = 0;
    if (n) p->first[0] = 0, p->past[0] = n;
    return 1;
}

static void mark(Partition *p, int32_t e) {
    int32_t s = p->set[e], i = p->loc[e], j = p->first[s] + p->marked[s];
    if (i < j) return; /* marked already */
    p->elems[i] = p->elems[j], p->loc[p->elems[i]] = i;
    p->elems[j] = e, p->loc[e] = j;
    if (!p->marked[s]++) p->touched[p->num_touched++] = s;
}

static void split(Partition *p) {
    while (p->num_touched) {
        int32_t s = p->touched[--p->num_touched], j = p->first[s] + p->marked[s];
        if (j == p->past[s]) {
            p->marked[s] = 0;
            continue;
        }
        int32_t z = p->count;
        if (p->marked[s] <= p->past[s] - j) {
            p->first[z] = p->first[s], p->past[z] = p->first[s] = j;
        } else {
            p->past[z] = p->past[s], p->first[z] = p->past[s] = j;
        }
        for (int32_t i = p->first[z]; i < p->past[z]; i++) p->set[p->elems[i]] = z;
        p->marked[s] = p->marked[z] = 0;
        p->count++;
    }
}

/* Replace a DFA by the minimal one without dead states, numbered breadth first from its start,
 * state 0; return its size, 0 if no string is accepted. */
int64_t minimize(int32_t S, int32_t C, int32_t *trans, uint8_t *accepting) {
    int64_t result = OUT_OF_MEMORY, M = 0, total = (int64_t)S * C;
    Partition blocks = {0}, cords = {0};
    int32_t *into_first = calloc((size_t)S + 1, sizeof(int32_t));
    int32_t *into = malloc((size_t)(total + 1) * sizeof(int32_t));
    int32_t *tail = malloc((size_t)(total + 1) * sizeof(int32_t));
    int32_t *head = malloc((size_t)(total + 1) * sizeof(int32_t));
    int32_t *queue = malloc((size_t)(S + 1) * sizeof(int32_t));
    int32_t *number = malloc((size_t)(S + 1) * sizeof(int32_t));
    uint8_t *alive = calloc((size_t)S + 1, 1), *accepts = malloc((size_t)S + 1);
    int32_t *rows = NULL;
    if (!into_first || !into || !tail || !head || !queue || !number || !alive || !accepts)
        goto done;
    /* Who can reach an accepting state: backwards over incoming transitions. */
    for (int64_t i = 0; i < total; i++)
        if (trans[i] >= 0) into_first[trans[i] + 1]++;
    for (int32_t s = 0; s < S; s++) into_first[s + 1] += into_first[s];
    memcpy(number, into_first, (size_t)(S + 1) * sizeof(int32_t));
    for (int64_t i = 0; i < total; i++)
        if (trans[i] >= 0) into[number[trans[i]]++] = (int32_t)(i / C);
    int32_t num = 0;
    for (int32_t s = 0; s < S; s++)
        if (accepting[s]) alive[s] = 1, queue[num++] = s;
    for (int32_t i = 0; i < num; i++)
        for (int32_t j = into_first[queue[i]]; j < into_first[queue[i] + 1]; j++)
            if (!alive[into[j]]) alive[into[j]] = 1, queue[num++] = into[j];
    if (!alive[0]) {
        result = 0;
        goto done;
    }
    /* Live transitions, grouped by class. */
    int32_t *class_end = calloc((size_t)C, sizeof(int32_t));
    if (!class_end) goto done;
    for (int32_t c = 0; c < C; c++) {
        for (int32_t s = 0; s < S; s++) {
            int32_t t = trans[(int64_t)s * C + c];
            if (alive[s] && t >= 0 && alive[t]) tail[M] = s, head[M++] = t;
        }
        class_end[c] = (int32_t)M;
    }
    if (!partition_init(&blocks, S) || !partition_init(&cords, (int32_t)M)) {
        free(class_end);
        goto done;
    }
    for (int32_t s = 0; s < S; s++)
        if (!alive[s]) mark(&blocks, s);
    split(&blocks);
    for (int32_t s = 0; s < S; s++)
        if (accepting[s]) mark(&blocks, s);
    split(&blocks);
    if (M) {
        cords.count = 0;
        for (int32_t c = 0, begin = 0; c < C; begin = class_end[c++]) {
            if (begin == class_end[c]) continue;
            cords.first[cords.count] = begin, cords.past[cords.count] = class_end[c];
            cords.marked[cords.count] = 0;
            for (int32_t i = begin; i < class_end[c]; i++) cords.set[i] = cords.count;
            cords.count++;
        }
    }
    free(class_end);
    memset(into_first, 0, ((size_t)S + 1) * sizeof(int32_t));
    for (int64_t i = 0; i < M; i++) into_first[head[i] + 1]++;
    for (int32_t s = 0; s < S; s++) into_first[s + 1] += into_first[s];
    memcpy(number, into_first, (size_t)(S + 1) * sizeof(int32_t));
    for (int32_t i = 0; i < (int32_t)M; i++) into[number[head[i]]++] = i;
    for (int32_t b = 1, c = 0; c < cords.count;) {
        for (int32_t i = cords.first[c]; i < cords.past[c]; i++) mark(&blocks, tail[cords.elems[i]]);
        split(&blocks);
        c++;
        for (; b < blocks.count; b++) {
            for (int32_t i = blocks.first[b]; i < blocks.past[b]; i++)
                for (int32_t j = into_first[blocks.elems[i]]; j < into_first[blocks.elems[i] + 1]; j++)
                    mark(&cords, into[j]);
            split(&cords);
        }
    }
    /* Number the blocks breadth first and write the quotient over the arguments. */
    for (int32_t b = 0; b < blocks.count; b++) number[b] = -1;
    rows = malloc((size_t)blocks.count * (size_t)C * sizeof(int32_t));
    if (!rows) goto done;
    num = 0;
    number[blocks.set[0]] = num;
    queue[num++] = 0;
    for (int32_t i = 0; i < num; i++) {
        accepts[i] = accepting[queue[i]];
        for (int32_t c = 0; c < C; c++) {
            int32_t t = trans[(int64_t)queue[i] * C + c];
            if (t >= 0 && alive[t]) {
                if (number[blocks.set[t]] < 0) number[blocks.set[t]] = num, queue[num++] = t;
                t = number[blocks.set[t]];
            } else {
                t = -1;
            }
            rows[(int64_t)i * C + c] = t;
        }
    }
    memcpy(trans, rows, (size_t)num * (size_t)C * sizeof(int32_t));
    memcpy(accepting, accepts, (size_t)num);
    result = num;
done:
    free(into_first), free(into), free(tail), free(head), free(queue), free(number), free(alive);
    free(accepts), free(rows), free(blocks.elems), free(cords.elems);
    return result;
}

/* A trie in which tokens that an automaton cannot tell apart share their nodes.
 *
 * The nodes of a trie are in preorder: after node i comes its first child, skip[i] is where its
 * subtree ends. Children that read the same class are merged, dead classes are left out. */
typedef struct {
    const uint8_t *node_class, *live;
    const int32_t *skip, *token_first, *token_ids;
    int32_t num_nodes, C, count, num_tokens;
    int32_t *arena, arena_len, *starts; /* scratch: node lists; C + 1 counters a level */
    uint8_t *out_class;
    int16_t *out_depth;
    int32_t *out_skip, *out_first, *out_ids;
} Merge;

/* Emit the merged children of the `n` nodes at `nodes`; child lists live at the arena's end. */
static void merge_children(Merge *m, int32_t at, int32_t n, int32_t depth) {
    int32_t *starts = m->starts + (int64_t)depth * (m->C + 1), base = m->arena_len, total = 0;
    memset(starts, 0, ((size_t)m->C + 1) * sizeof(int32_t));
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t k = 0; k < n; k++) {
            int32_t node = m->arena[at + k], end = node < 0 ? m->num_nodes : m->skip[node];
            for (int32_t child = node + 1; child < end; child = m->skip[child]) {
                uint8_t c = m->node_class[child];
                if (!m->live[c]) continue;
                if (pass) m->arena[base + starts[c]++] = child;
                else starts[c + 1]++, total++;
            }
        }
        if (!total) return;
        if (!pass)
            for (int32_t c = 0; c < m->C; c++) starts[c + 1] += starts[c];
    }
    m->arena_len += total;
    for (int32_t c = 0, begin = 0; c < m->C; begin = starts[c++]) {
        int32_t size = starts[c] - begin; /* after the second pass starts[c] is where c ends */
        if (!size) continue;
        int32_t own = m->count++;
        m->out_class[own] = (uint8_t)c;
        m->out_depth[own] = (int16_t)(depth + 1);
        m->out_first[own] = m->num_tokens;
        for (int32_t k = 0; k < size; k++) {
            int32_t node = m->arena[base + begin + k];
            for (int32_t j = m->token_first[node]; j < m->token_first[node + 1]; j++)
                m->out_ids[m->num_tokens++] = m->token_ids[j];
        }
        merge_children(m, base + begin, size, depth + 1);
        m->out_skip[own] = m->count;
    }
    m->arena_len = base;
}

/* Return the number of merged nodes. */
int64_t merge_trie(int32_t num_nodes, const uint8_t *node_class, const int32_t *skip,
                   const int32_t *token_first, const int32_t *token_ids, int32_t C,
                   const uint8_t *live, int32_t max_depth, uint8_t *out_class, int16_t *out_depth,
                   int32_t *out_skip, int32_t *out_first, int32_t *out_ids) {
    Merge m = {node_class, live, skip, token_first, token_ids, num_nodes, C, 0, 0, NULL, 0, NULL,
               out_class,  out_depth, out_skip, out_first, out_ids};
    /* Every node is in one list of each level at most, and levels nest along one path. */
    m.arena = malloc(((size_t)num_nodes + 1) * sizeof(int32_t));
    m.starts = malloc(((size_t)max_depth + 2) * ((size_t)C + 1) * sizeof(int32_t));
    int64_t result = OUT_OF_MEMORY;
    if (m.arena && m.starts) {
        m.arena[0] = -1; /* the root, whose children are the first nodes */
        m.arena_len = 1;
        merge_children(&m, 0, 1, 0);
        out_first[m.count] = m.num_tokens;
        result = m.count;
    }
    free(m.arena), free(m.starts);
    return result;
}

/* Masks of some states over the vocabulary, equal rows stored once.
 *
 * A state's mask is one walk over the nodes of the trie whose bytes the automaton can read. Rows
 * are told apart by two 64-bit hashes of those nodes, so only new ones are written out.
 * Returns how many states were done; fewer than asked where `rows` is full. */
int64_t masks(int32_t num_nodes, const uint8_t *node_class, const int16_t *depth,
              const int32_t *skip, const int32_t *token_first, const int32_t *token_ids, int32_t C,
              const int32_t *row_of, const int32_t *delta, const uint8_t *accepting,
              const uint32_t *end_row, int32_t W, int32_t num_states, const int32_t *states,
              int32_t max_rows, int32_t *num_rows, uint32_t *rows, uint64_t *hashes,
              int32_t *mask_of, int32_t max_depth) {
    int64_t done = OUT_OF_MEMORY, table_len = 64;
    while (table_len < 4 * (int64_t)max_rows) table_len *= 2;
    int32_t *table = malloc((size_t)table_len * sizeof(int32_t));
    int32_t *path = malloc(((size_t)max_depth + 2) * sizeof(int32_t));
    int32_t *allowed = malloc(((size_t)num_nodes + 1) * sizeof(int32_t));
    if (!table || !path || !allowed) goto done;
    memset(table, 0xFF, (size_t)table_len * sizeof(int32_t));
    for (int32_t r = 0; r < *num_rows; r++) {
        int64_t at = (int64_t)(hashes[2 * r] >> 20) & (table_len - 1);
        while (table[at] >= 0) at = (at + 1) & (table_len - 1);
        table[at] = r;
    }
    for (done = 0; done < num_states; done++) {
        int32_t start = states[done], count = 0;
        uint64_t h = accepting[start] ? 0x9E3779B97F4A7C15ull : 1469598103934665603ull, g = h;
        path[0] = start;
        for (int32_t i = 0; i < num_nodes;) {
            int32_t from = path[depth[i] - 1];
            int32_t step = delta[(int64_t)row_of[from] * C + node_class[i]];
            if (step == DEAD) {
                i = skip[i];
                continue;
            }
            path[depth[i]] = from + step;
            if (token_first[i + 1] > token_first[i]) {
                allowed[count++] = i;
                h = (h ^ (uint64_t)i) * 1099511628211ull;
                g = (g + (uint64_t)i + 1) * 0xD1342543DE82EF95ull;
                g ^= g >> 29;
            }
            i++;
        }
        int64_t at = (int64_t)(h >> 20) & (table_len - 1);
        for (; table[at] >= 0; at = (at + 1) & (table_len - 1))
            if (hashes[2 * table[at]] == h && hashes[2 * table[at] + 1] == g) break;
        if (table[at] < 0) {
            if (*num_rows == max_rows) break;
            uint32_t *row = rows + (int64_t)*num_rows * W;
            if (accepting[start]) memcpy(row, end_row, (size_t)W * sizeof(uint32_t));
            else memset(row, 0, (size_t)W * sizeof(uint32_t));
            for (int32_t k = 0; k < count; k++)
                for (int32_t j = token_first[allowed[k]]; j < token_first[allowed[k] + 1]; j++)
                    row[token_ids[j] >> 5] |= 1u << (token_ids[j] & 31);
            hashes[2 * *num_rows] = h, hashes[2 * *num_rows + 1] = g;
            table[at] = (*num_rows)++;
        }
        mask_of[done] = table[at];
    }
done:
    free(table), free(path), free(allowed);
    return done;
}
