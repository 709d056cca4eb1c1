copy public.language (language_id, name) from stdin;
1	English
2	Italian
\.
copy public.actor (actor_id, first_name, last_name) from stdin;
1	PENELOPE	GUINESS
2	NICK	WAHLBERG
\.
insert into public.category (category_id, name) values (1, 'Action'), (2, 'Animation');
copy public.film (film_id, title, description, release_year, language_id, rating, special_features) from stdin;
1	ACADEMY DINOSAUR	An epic drama of a feminist and a mad scientist	2006	1	PG	{"Deleted Scenes","Behind the Scenes"}
2	ACE GOLDFINGER	An astounding epistle of a database administrator	2006	1	G	{Trailers}
\.
copy public.film_actor (actor_id, film_id) from stdin;
1	1
2	1
2	2
\.
insert into public.film_category values (1, 1), (2, 2);
insert into public.store values (1, 'first'), (2, 'second');
insert into public.customer (customer_id, store_id, first_name, email) values (1, 1, 'MARY', 'mary@example.org'), (2, 2, 'PATRICIA', null);
insert into public.inventory values (1, 1, 1), (2, 2, 2);
insert into public.rental values (1, '[2022-01-24 21:00+00,2022-01-30 12:00+00)', 1, 1), (2, '[2022-02-01 10:00+00,2022-02-03 12:00+00)', 2, 2);
copy public.payment (payment_id, customer_id, rental_id, amount, payment_date) from stdin;
1	1	1	2.99	2022-01-24 21:40:19+00
2	2	2	0.99	2022-02-01 10:11:00+00
3	2	2	5.99	2023-05-01 00:00:00+00
\.
