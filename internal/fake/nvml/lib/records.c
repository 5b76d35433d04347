/*
 * records.c: the tables, and the lines that they are written as.
 *
 * A byte of a text that would end a value or a line is written as % and two hex digits.
 */
#include "records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AS_NUM, AS_TEXT, AS_LIST };

typedef struct {
  const char *key;
  int as;
  size_t offset;
} field;

#define FIELD_NUM(T, key) {#key, AS_NUM, offsetof(T, key)},
#define FIELD_TEXT(T, key) {#key, AS_TEXT, offsetof(T, key)},
#define FIELD_LIST(T, key) {#key, AS_LIST, offsetof(T, key)},
#define FIELDS(T) static const field T##_fields[] = {T##_FIELDS(T, FIELD_NUM, FIELD_TEXT, FIELD_LIST)};
RECORDS(FIELDS)

typedef struct {
  const char *kind;
  size_t size;
  const field *fields;
  int field_count;
  char *records;
  int count, room;
} table;

#define TABLE(T) {#T, sizeof(T), T##_fields, sizeof T##_fields / sizeof T##_fields[0], NULL, 0, 0},
static table tables[TABLES] = {RECORDS(TABLE)};

void *table_first(int kind) { return tables[kind].records; }

int table_count(int kind) { return tables[kind].count; }

void *table_add(int kind) {
  table *t = &tables[kind];
  if (t->count == t->room) {
    t->room = t->room ? 2 * t->room : 16;
    t->records = realloc(t->records, t->room * t->size);
    if (!t->records) abort();
  }
  void *record = t->records + t->count++ * t->size;
  memset(record, 0, t->size);
  return record;
}

void table_remove(int kind, void *record) {
  table *t = &tables[kind];
  char *next = (char *)record + t->size, *end = t->records + t->count-- * t->size;
  memmove(record, next, end - next);
}

static int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int parse_text(char *to, const char *from) {
  int n = 0;
  for (; *from && n < TEXT_SIZE - 1; from++) {
    if (*from != '%') {
      to[n++] = *from;
      continue;
    }
    if (hex(from[1]) < 0 || hex(from[2]) < 0) return -1;
    to[n++] = hex(from[1]) << 4 | hex(from[2]);
    from += 2;
  }
  to[n] = 0;
  return *from ? -1 : 0;
}

static int parse_list(numbers *to, const char *from) {
  char *end;
  for (to->count = 0; *from; from = end + (*end == ',')) {
    if (to->count == LIST_SIZE) return -1;
    to->values[to->count++] = strtol(from, &end, 10);
    if (end == from) return -1;
  }
  return 0;
}

static int parse_value(char *record, const field *f, const char *value) {
  char *end;
  switch (f->as) {
  case AS_TEXT:
    return parse_text(record + f->offset, value);
  case AS_LIST:
    return parse_list((numbers *)(record + f->offset), value);
  default:
    *(long long *)(record + f->offset) = strtoll(value, &end, 10);
    return *end || end == value ? -1 : 0;
  }
}

/* parse_line reads one record. Fields come in the declared order, all of them. */
static int parse_line(char *line) {
  char *rest, *kind = strtok_r(line, " ", &rest);
  if (!kind) return 0;
  int k = 0;
  while (k < TABLES && strcmp(tables[k].kind, kind)) k++;
  if (k == TABLES) return -1;
  char *record = table_add(k);
  for (int i = 0; i < tables[k].field_count; i++) {
    const field *f = &tables[k].fields[i];
    char *item = strtok_r(NULL, " ", &rest), *value = item ? strchr(item, '=') : NULL;
    if (!value) return -1;
    *value++ = 0;
    if (strcmp(item, f->key) || parse_value(record, f, value)) return -1;
  }
  return strtok_r(NULL, " ", &rest) ? -1 : 0;
}

int records_parse(char *text) {
  for (int k = 0; k < TABLES; k++) tables[k].count = 0;
  char *rest;
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    if (parse_line(line)) return -1;
  }
  return table_count(IN_machine) == 1 ? 0 : -1;
}

static void print_text(FILE *out, const char *text) {
  for (; *text; text++) {
    unsigned char c = *text;
    if (c <= ' ' || c == '%' || c == '=' || c == 0x7f) fprintf(out, "%%%02X", c);
    else fputc(c, out);
  }
}

static void print_field(FILE *out, const char *record, const field *f) {
  const numbers *l = (const numbers *)(record + f->offset);
  fprintf(out, " %s=", f->key);
  switch (f->as) {
  case AS_TEXT:
    print_text(out, record + f->offset);
    break;
  case AS_LIST:
    for (int i = 0; i < l->count; i++) fprintf(out, i ? ",%d" : "%d", l->values[i]);
    break;
  default:
    fprintf(out, "%lld", *(const long long *)(record + f->offset));
  }
}

char *records_print(size_t *length) {
  char *text = NULL;
  FILE *out = open_memstream(&text, length);
  if (!out) return NULL;
  for (int k = 0; k < TABLES; k++) {
    for (int i = 0; i < tables[k].count; i++) {
      fputs(tables[k].kind, out);
      for (int f = 0; f < tables[k].field_count; f++) {
        print_field(out, tables[k].records + i * tables[k].size, &tables[k].fields[f]);
      }
      fputc('\n', out);
    }
  }
  return fclose(out) ? NULL : text;
}
